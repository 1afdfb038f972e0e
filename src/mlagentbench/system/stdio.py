"""Standard input, output and error of the command line: what befalls them befalls no run."""

import io
import os
import sys
from typing import Any, Literal, TextIO


class BestEffortStream(io.FileIO):
    """Words for whoever listens: where nobody does any more, or the disk is full, they are lost, and that is all."""

    def write(self, data: Any, /) -> int:
        """As much as can be written; what cannot be counts as written."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def harden_stdio() -> None:
    """Give the process three streams that can be used: none is closed, and none fails over a letter it cannot write."""
    _reopen_closed_fds()
    if os.environ.get("COLUMNS", "").strip("0") == "":
        os.environ.pop("COLUMNS", None)  # a terminal of no width is one that does not know its own
    sys.stdin = sys.stdin or _open_fd(0, "r")
    sys.stdout = sys.stdout or _open_fd(1, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    buffer = io.BufferedWriter(BestEffortStream(2, "w", closefd=False))
    encoding = sys.stderr.encoding if sys.stderr else "utf-8"
    sys.stderr = io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=True)


def _reopen_closed_fds() -> None:
    """A file of a run that got one of these numbers would be written to by whoever complains."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _open_fd(fd: int, mode: Literal["r", "w"]) -> TextIO:
    return open(fd, mode, encoding="utf-8", closefd=False)
