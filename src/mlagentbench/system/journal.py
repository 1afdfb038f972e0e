"""A file of lines that is only ever added to, and that a kill or a full disk cannot spoil."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from mlagentbench.errors import Fault


class Journal:
    """Each line is written whole, by one call to the kernel, or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: str) -> None:
        """Add a line; when this returns, a kill -9 cannot take it back."""
        data = line.encode() + b"\n"
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _write_whole(fd, data)
            finally:
                os.close(fd)
        except OSError as error:
            why = "disk full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
            raise Fault(f"cannot write {self.path}: {why}") from error

    def lines(self) -> Iterator[tuple[str, int]]:
        """Every whole line, and where it ends in the file; a torn last one does not count."""
        if not self.path.exists():
            return
        end = 0
        with self.path.open("rb") as file:
            for raw in file:
                end += len(raw)
                if raw.endswith(b"\n"):
                    yield raw.decode("utf-8", "replace"), end

    def truncate(self, end: int) -> None:
        """Forget whatever stands after `end`."""
        if self.path.exists() and self.path.stat().st_size > end:
            os.truncate(self.path, end)


def escape_invalid_utf8(text: str) -> str:
    """Text that JSON can carry: what is no UTF-8 is shown with escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _write_whole(fd: int, data: bytes) -> None:
    size = os.fstat(fd).st_size
    try:
        if os.write(fd, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(fd, size)
        raise
