"""Runs one command under Landlock: restricts it, decides its calls, and kills all that it started.

A process of its own, outside the restrictions, so that the command cannot reach it. Orphans of the command
become its children, so none escapes. It ends with the command or with the harness, however that dies. It uses
the standard library only, because it starts before every command.
"""

import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from mlagentbench.sandbox.landlock import kernel
from mlagentbench.sandbox.landlock.decisions import Decisions
from mlagentbench.sandbox.processes import kill_together, list_process_tree
from mlagentbench.sandbox.seccomp_listener import SeccompListener

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
RETRY_INTERVAL_MS = 5


def main() -> None:
    """Run the command that the request describes; exit as it does."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        request: dict[str, Any] = json.loads(file.read())
    child_changed, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        _become_user(request["uid"])
        kernel.set_process_option(PR_SET_CHILD_SUBREAPER, 1)
        kernel.set_process_option(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != request["parent"]:
            return
        channel, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            _run_command(request, theirs)
        theirs.close()
        _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    except OSError as error:
        os.write(1, f"{error}\n".encode())
        os._exit(127)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # so that only the command holds its streams
        os.dup2(null, fd)
    code = 127
    try:
        if fds:
            decisions = Decisions(
                SeccompListener(fds[0]),
                {int(number): (method, name) for number, (method, name) in request["calls"].items()},
                request["writable"],
                request["protected"],
                request["shared_memory"],
            )
            code = _serve(decisions, fds[0], pid, child_changed)
        else:
            code = _exit_code(os.waitpid(pid, 0)[1])
    finally:
        _kill_all()
        for folder in request["private_folders"]:
            shutil.rmtree(folder, ignore_errors=True)
    os._exit(code)


def _become_user(uid: int) -> None:
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    elif os.geteuid() == 0:
        kernel.drop_capabilities()


def _run_command(request: dict[str, Any], channel: socket.socket) -> None:
    """In the child: give up all rights, send the listener to the supervisor, and become the command."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        kernel.set_process_option(PR_SET_CHILD_SUBREAPER, 0)
        kernel.set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.set_process_option(PR_SET_DUMPABLE, 1)  # it is not after a change of user
        os.chdir(request["folder"])
        kernel.restrict_self(request["rules"], request["version"])
        listener = kernel.install_filter(bytes.fromhex(request["filter"]))
        socket.send_fds(channel, [b"\n"], [listener])
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.execve("/bin/sh", request["command"], request["environment"])
    except BaseException as error:  # noqa: BLE001 - the harness reads it instead of the ready byte
        os.write(1, f"{error}\n".encode())
    os._exit(127)


def _serve(decisions: Decisions, listener: int, pid: int, child_changed: int) -> int:
    """Decide calls until the command exits or the harness is gone; returns the exit code."""
    parent = os.getppid()
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(child_changed, select.POLLIN)
    while True:
        ready = dict(poll.poll(RETRY_INTERVAL_MS if decisions.waiting else None))
        if child_changed in ready:
            os.read(child_changed, 1 << 12)
            code = _reap(pid)
            if code is not None or os.getppid() != parent:
                return 127 if code is None else code
        if ready.get(listener, 0) & select.POLLIN:
            decisions.receive()
        elif listener in ready:  # no process is left; the exit of the command follows
            poll.unregister(listener)
        if decisions.waiting:
            decisions.retry_waiting()


def _reap(pid: int) -> int | None:
    """Reap orphans; the exit code of the command if it has exited."""
    code = None
    with suppress(ChildProcessError):
        while (exited := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if exited[0] == pid:
                code = _exit_code(exited[1])
    return code


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _kill_all() -> None:
    """Kill everything that the command started, again and again, until no child is left."""
    while True:
        kill_together(list_process_tree(os.getpid())[1:])
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        time.sleep(0.0005)


if __name__ == "__main__":
    main()
