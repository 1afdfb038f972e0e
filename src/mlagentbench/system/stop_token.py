"""Whether somebody asked a run to stop: another thread, or any process of the user, by a file in the run's folder."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from types import FrameType

from mlagentbench.errors import Stopped

STOP_FILE = "stop"
POLL_INTERVAL_S = 0.2  # seconds between two looks for the file


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, and a second one at once; who ignores it goes on ignoring it."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    if before != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class StopToken:
    """Heeded between steps and while scripts run; once asked, it stays so."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = folder / STOP_FILE if folder else None
        self._asked = Event()
        self._next = 0.0

    def request(self) -> None:
        """Stop at the next moment."""
        self._asked.set()

    @property
    def requested(self) -> bool:
        """Whether it is time to stop."""
        now = monotonic()
        if self._file and now >= self._next and not self._asked.is_set():
            self._next = now + POLL_INTERVAL_S
            if self._file.exists():
                self._asked.set()
        return self._asked.is_set()

    def raise_if_requested(self) -> None:
        """Raise if it is time to stop."""
        if self.requested:
            raise Stopped("somebody asked the run to stop")
