"""Runs inside a container as its first process: takes streams and orders from the harness, and ends when it ends.

A container engine passes on no descriptors and puts itself between a command and its reader. So the streams come by a
socket, and the command has the very ones that it would have without an engine. That socket is also how the harness is
known to live: when it closes, however the harness died, the first process ends, and with it all the others.
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

SOCKET_PATH = "/run/box/enter"
PR_SET_NO_NEW_PRIVS, PR_SET_DUMPABLE, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 4, 22, 2  # of prctl


def receive_request(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The order, which is one line, and the descriptors that come with its beginning."""
    data, fds, _, _ = socket.recv_fds(channel, 1 << 16, 2)
    while data and not data.endswith(b"\n"):
        data += (more := channel.recv(1 << 16))
        if not more:
            break
    if not data:
        os._exit(1)
    order: dict[str, Any] = json.loads(data)
    return order, fds


def drop_rights(program: bytes, bounds: list[tuple[int, int]]) -> None:
    """Take rights away for good; and nobody inside may look into this process, or steer it."""
    for kind, most in bounds:
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    deeds = (
        (PR_SET_NO_NEW_PRIVS, 1, 0),
        (PR_SET_DUMPABLE, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filter_)),
    )
    for what, one, two in deeds:
        if libc.prctl(what, ctypes.c_ulong(one), ctypes.c_ulong(two), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {what}")


def start_command(order: dict[str, Any], fds: list[int]) -> int:
    """The command, as a child; its errors go where its output goes."""
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
        os.execve("/bin/sh", order["argv"], order["environment"])
    except BaseException as error:  # noqa: BLE001 - whoever waits for it must hear of it
        os.write(1, str(error).encode())
    os._exit(127)


def wait_for_command(pid: int, channel: socket.socket, woken: int) -> None:
    """Bury the dead until the command is among them, or the harness is gone."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if channel.fileno() in ready:
            os._exit(1)
        os.read(woken, 1 << 12)
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)) is not None:
            if found.si_pid == pid:
                os._exit(found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status)


def main() -> None:
    """One command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which the kernel keeps from a first process
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(SOCKET_PATH)
    order, fds = receive_request(channel)
    try:
        drop_rights(bytes.fromhex(order["filter"]), order["bounds"])
    except (OSError, ValueError) as error:
        os.write(fds[1], str(error).encode())
        os._exit(127)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    pid = start_command(order, fds)
    for fd in fds:
        os.close(fd)
    wait_for_command(pid, channel, woken)


if __name__ == "__main__":
    main()
