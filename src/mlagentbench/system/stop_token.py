"""Requests to stop a run: from another thread, or from any process through a file in the run folder."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from types import FrameType

from mlagentbench.errors import Stopped

STOP_FILE = "stop"
POLL_INTERVAL_S = 0.2  # between two checks for the file


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Treat the first SIGTERM as Ctrl-C; a second one kills. An ignored SIGTERM stays ignored."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    previous = signal.getsignal(signal.SIGTERM)
    if previous != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


class StopToken:
    """Checked between steps and while scripts run. Once stop is requested, it stays requested.

    A single command can be cancelled as well, in a run that goes on: see `cancellable_by`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Watch for the stop file in `folder`, if one is given."""
        self._file = folder / STOP_FILE if folder else None
        self._event = Event()
        self._cancel: Event | None = None
        self._next_poll = 0.0

    def request(self) -> None:
        """Ask the run to stop as soon as possible."""
        self._event.set()

    @property
    def requested(self) -> bool:
        """Whether the run should stop."""
        now = monotonic()
        if self._file and now >= self._next_poll and not self._event.is_set():
            self._next_poll = now + POLL_INTERVAL_S
            if self._file.exists():
                self._event.set()
        return self._event.is_set()

    @contextmanager
    def cancellable_by(self, cancel: Event) -> Iterator[None]:
        """Terminate the commands of this block once `cancel` is set."""
        self._cancel = cancel
        try:
            yield
        finally:
            self._cancel = None

    @property
    def command_cancelled(self) -> bool:
        """Whether the current command should be terminated, and the run go on."""
        return self._cancel is not None and self._cancel.is_set()

    def raise_if_requested(self) -> None:
        """Raise Stopped if the run should stop."""
        if self.requested:
            raise Stopped("Stop requested.")
