"""Supervises one command: counts what each call accesses, lets it continue, and reports counts on request.

It is a separate process, so that the command never waits for the interpreter lock of the harness. It has the
uid of the command, so that it can read and reach no more than the command. It exits when the harness closes
the socket that is its standard input.
"""

import json
import os
import select
import socket
import sys

from mlagentbench.sandbox.access_log.counts import AccessCounts
from mlagentbench.sandbox.access_log.expected_paths import is_local_address
from mlagentbench.sandbox.access_log.lookup import SandboxFiles, is_immutable_path
from mlagentbench.sandbox.access_log.requests import AccessRequest, parse_request
from mlagentbench.sandbox.seccomp_listener import SeccompListener


class Supervisor:
    """Counts the accesses of one command."""

    def __init__(self, listener: SeccompListener, syscall_names: dict[int, str]) -> None:
        self._listener, self._syscall_names = listener, syscall_names
        self._files: SandboxFiles | None = None
        self.counts = AccessCounts()

    def handle_call(self) -> None:
        """Handle one call. Paths that can change are resolved while it waits, others after it continues."""
        notification = self._listener.receive()
        if notification is None:
            return
        request = None
        try:
            self._files = self._files or SandboxFiles(notification.tid)
            request = parse_request(self._listener, notification, self._syscall_names[notification.number])
            if request and not is_immutable_path(request.path):
                self._count(request, notification.tid, self._files)
                request = None
        except (FileNotFoundError, ProcessLookupError):
            pass  # its process was killed meanwhile
        finally:
            self._listener.continue_call(notification)
        if request and self._files:
            self._count(request, notification.tid, self._files)

    def _count(self, request: AccessRequest, tid: int, files: SandboxFiles) -> None:
        path = request.path.removeprefix("unix:")
        if path.startswith("/"):
            mode = "write" if request.path.startswith("unix:") else request.mode
            resolved, refused = files.resolve(tid, path, mode, request.creates)
            self.counts.add(request.path.removesuffix(path) + resolved, request.mode, refused)
        else:
            self.counts.add(request.path, request.mode, not is_local_address(request.path))


def main(uid: int, syscall_names: dict[int, str]) -> None:
    """Supervise until the harness closes the socket."""
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    channel = socket.socket(fileno=0)
    _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    if not fds:
        return
    listener_fd, exited = fds[0], False
    supervisor = Supervisor(SeccompListener(listener_fd), syscall_names)
    poll = select.poll()
    poll.register(listener_fd, select.POLLIN)
    poll.register(channel, select.POLLIN)
    while True:
        for fd, event in poll.poll():
            if fd == listener_fd and event & select.POLLIN:
                supervisor.handle_call()
            elif fd == listener_fd:  # every process has exited
                poll.unregister(listener_fd)
                exited = True
            elif channel.recv(1):
                reply = json.dumps({"exited": exited, "accesses": supervisor.counts.rows()}).encode()
                channel.sendall(len(reply).to_bytes(8) + reply)
                supervisor.counts = AccessCounts()
            else:
                return


if __name__ == "__main__":
    main(int(sys.argv[1]), {int(number): name for number, name in json.loads(sys.argv[2]).items()})
