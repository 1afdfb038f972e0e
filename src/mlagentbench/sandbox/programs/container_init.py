"""Runs inside a container as its first process: starts one command, and exits with it or with the harness.

A container engine does not pass descriptors on, and stands between a command and the reader of its output. So
the harness sends the streams over a socket, and the command gets the same ones that it would have without an
engine. The socket also shows whether the harness is alive: when it closes, for whatever reason, this process
exits, and the kernel then kills all others in the container.
"""

import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
from typing import Any

SOCKET_PATH = "/run/sandbox/control"
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38
SECCOMP_MODE_FILTER = 2


def receive_request(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive the request, which is one line of JSON, and the descriptors that come with its first bytes."""
    data, fds, _, _ = socket.recv_fds(channel, 1 << 16, 2)
    while data and not data.endswith(b"\n"):
        data += (more := channel.recv(1 << 16))
        if not more:
            break
    if not data:
        os._exit(1)
    request: dict[str, Any] = json.loads(data)
    return request, fds


def drop_rights(seccomp_filter: bytes, rlimits: list[tuple[int, int]]) -> None:
    """Set limits, and make this process impossible to inspect or control from inside the container."""
    for resource_id, maximum in rlimits:
        hard = resource.getrlimit(resource_id)[1]
        limit = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(resource_id, (limit, limit))
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(seccomp_filter, len(seccomp_filter))
    program = struct.pack("HxxxxxxP", len(seccomp_filter) // 8, ctypes.addressof(code))
    program_buffer = ctypes.create_string_buffer(program)
    settings = (
        (PR_SET_NO_NEW_PRIVS, 1, 0),
        (PR_SET_DUMPABLE, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program_buffer)),
    )
    for option, arg2, arg3 in settings:
        if libc.prctl(option, ctypes.c_ulong(arg2), ctypes.c_ulong(arg3), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {option}")


def start_command(request: dict[str, Any], fds: list[int]) -> int:
    """Start the command as a child with stderr going to stdout, and return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for target, source in enumerate((fds[0], fds[1], fds[1])):
            os.dup2(source, target)
        os.closerange(3, 1 << 12)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir("/workspace")
        os.execve("/bin/sh", request["argv"], request["environment"])
    except BaseException as error:  # noqa: BLE001 - the harness reads it instead of the ready byte
        os.write(1, str(error).encode())
    os._exit(127)


def wait_for_command(pid: int, channel: socket.socket, child_exited: int) -> None:
    """Reap children until the command exits, then exit with its code; exit at once if the harness is gone."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(child_exited, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if channel.fileno() in ready:
            os._exit(1)
        os.read(child_exited, 1 << 12)
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)) is not None:
            if child.si_pid == pid:
                os._exit(child.si_status if child.si_code == os.CLD_EXITED else 128 + child.si_status)


def main() -> None:
    """Run one command."""
    # With the default action, the kernel does not deliver SIGINT to the first process of a container.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(SOCKET_PATH)
    request, fds = receive_request(channel)
    try:
        drop_rights(bytes.fromhex(request["filter"]), request["rlimits"])
    except (OSError, ValueError) as error:
        os.write(fds[1], str(error).encode())
        os._exit(127)
    child_exited, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    pid = start_command(request, fds)
    for fd in fds:
        os.close(fd)
    wait_for_command(pid, channel, child_exited)


if __name__ == "__main__":
    main()
