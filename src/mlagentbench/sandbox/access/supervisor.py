"""Listens to one sandboxed command: notes what each call wants, lets it go on, and tells the counts when asked.

A process of its own, so that the command never waits for its turn at the harness's interpreter; of the command's own
user, so that it may read and reach no more than that. It goes when the harness closes the socket, its standard input.
"""

import json
import os
import select
import socket
import sys

from mlagentbench.sandbox.access.counts import Counts
from mlagentbench.sandbox.access.ear import Ear
from mlagentbench.sandbox.access.lookup import View, is_lasting
from mlagentbench.sandbox.access.places import is_near
from mlagentbench.sandbox.access.wish import Wish, wish


class Supervisor:
    """Knows what the calls of one command mean."""

    def __init__(self, ear: Ear, names: dict[int, str]) -> None:
        self._ear, self._names = ear, names
        self._view: View | None = None
        self.counts = Counts()

    def attend(self) -> None:
        """One call: what may change is looked at while it waits; then it goes on, and the rest is done beside it."""
        notice = self._ear.hear()
        if notice is None:
            return
        wanted = None
        try:
            self._view = self._view or View(notice.thread)
            wanted = wish(self._ear, notice, self._names[notice.number])
            if wanted and not is_lasting(wanted.path):
                self._note(wanted, notice.thread, self._view)
                wanted = None
        except (FileNotFoundError, ProcessLookupError):
            pass  # killed meanwhile
        finally:
            self._ear.go_on(notice)
        if wanted and self._view:
            self._note(wanted, notice.thread, self._view)

    def _note(self, wanted: Wish, thread: int, view: View) -> None:
        place = wanted.path.removeprefix("unix:")
        if place.startswith("/"):
            mode = "write" if wanted.path.startswith("unix:") else wanted.mode
            found, refused = view.find(thread, place, mode, wanted.creates)
            self.counts.add(wanted.path.removesuffix(place) + found, wanted.mode, refused)
        else:
            self.counts.add(wanted.path, wanted.mode, not is_near(wanted.path))


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
    supervisor = Supervisor(Ear(listener), names)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(channel, select.POLLIN)
    while True:
        for fd, event in poll.poll():
            if fd == listener and event & select.POLLIN:
                supervisor.attend()
            elif fd == listener:  # every process has ended
                poll.unregister(listener)
                ended = True
            elif channel.recv(1):
                told = json.dumps({"ended": ended, "tried": supervisor.counts.rows()}).encode()
                channel.sendall(len(told).to_bytes(8) + told)
                supervisor.counts = Counts()
            else:
                return


if __name__ == "__main__":
    main(int(sys.argv[1]), {int(number): name for number, name in json.loads(sys.argv[2]).items()})
