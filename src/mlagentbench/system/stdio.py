"""Standard streams that cannot end a run: never closed, never failing on write errors or odd characters."""

import io
import os
import sys
from typing import Any, Literal, TextIO


class BestEffortStream(io.FileIO):
    """A stream whose write errors are ignored: the reader may be gone, or the disk full."""

    def write(self, data: Any, /) -> int:
        """Write as much as possible; what cannot be written counts as written."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def harden_stdio() -> None:
    """Replace the three standard streams by ones that are open and do not raise."""
    _reopen_closed_fds()
    if os.environ.get("COLUMNS", "").strip("0") == "":
        os.environ.pop("COLUMNS", None)  # a width of 0 means that the terminal does not know its width
    sys.stdin = sys.stdin or _open_fd(0, "r")
    sys.stdout = sys.stdout or _open_fd(1, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    buffer = io.BufferedWriter(BestEffortStream(2, "w", closefd=False))
    encoding = sys.stderr.encoding if sys.stderr else "utf-8"
    sys.stderr = io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=True)


def _reopen_closed_fds() -> None:
    """Open /dev/null on closed standard descriptors, so that no file of a run gets their numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _open_fd(fd: int, mode: Literal["r", "w"]) -> TextIO:
    return open(fd, mode, encoding="utf-8", closefd=False)
