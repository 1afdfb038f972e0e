"""Listens to one sandboxed command: notes what each call wants, lets it go on, and tells the counts when asked.

A process of its own, so that the command never waits for its turn at the harness's interpreter; of the command's own
user, so that it may read and reach no more than that. It goes when the harness closes the socket, its standard input.
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
from mlagentbench.sandbox.access_log.seccomp_listener import SeccompListener


class Supervisor:
    """Knows what the calls of one command mean."""

    def __init__(self, ear: SeccompListener, names: dict[int, str]) -> None:
        self._listener, self._syscall_names = ear, names
        self._files: SandboxFiles | None = None
        self.counts = AccessCounts()

    def handle_call(self) -> None:
        """One call: what may change is looked at while it waits; then it goes on, and the rest is done beside it."""
        notice = self._listener.receive()
        if notice is None:
            return
        wanted = None
        try:
            self._files = self._files or SandboxFiles(notice.tid)
            wanted = parse_request(self._listener, notice, self._syscall_names[notice.number])
            if wanted and not is_immutable_path(wanted.path):
                self._count(wanted, notice.tid, self._files)
                wanted = None
        except (FileNotFoundError, ProcessLookupError):
            pass  # killed meanwhile
        finally:
            self._listener.continue_call(notice)
        if wanted and self._files:
            self._count(wanted, notice.tid, self._files)

    def _count(self, wanted: AccessRequest, thread: int, view: SandboxFiles) -> None:
        place = wanted.path.removeprefix("unix:")
        if place.startswith("/"):
            mode = "write" if wanted.path.startswith("unix:") else wanted.mode
            found, refused = view.resolve(thread, place, mode, wanted.creates)
            self.counts.add(wanted.path.removesuffix(place) + found, wanted.mode, refused)
        else:
            self.counts.add(wanted.path, wanted.mode, not is_local_address(wanted.path))


def main(owner: int, names: dict[int, str]) -> None:
    """Listen until nobody wants to know any more."""
    if owner:
        os.setgroups([])
        os.setresgid(owner, owner, owner)
        os.setresuid(owner, owner, owner)
    channel = socket.socket(fileno=0)
    _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    if not fds:
        return
    listener, ended = fds[0], False
    supervisor = Supervisor(SeccompListener(listener), names)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(channel, select.POLLIN)
    while True:
        for fd, event in poll.poll():
            if fd == listener and event & select.POLLIN:
                supervisor.handle_call()
            elif fd == listener:  # every process has ended
                poll.unregister(listener)
                ended = True
            elif channel.recv(1):
                told = json.dumps({"ended": ended, "tried": supervisor.counts.rows()}).encode()
                channel.sendall(len(told).to_bytes(8) + told)
                supervisor.counts = AccessCounts()
            else:
                return


if __name__ == "__main__":
    main(int(sys.argv[1]), {int(number): name for number, name in json.loads(sys.argv[2]).items()})
