"""Append-only files of lines that survive kill -9 and full disks."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from mlagentbench.errors import Fault


class Journal:
    """A file of lines; each line is written completely, with a single system call, or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: str) -> None:
        """Add a line. Once this returns, killing the process cannot lose it.

        Raises:
            Fault: The line cannot be written, for example because the disk is full.
        """
        data = line.encode() + b"\n"
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _write_whole(fd, data)
            finally:
                os.close(fd)
        except OSError as error:
            reason = "disk full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
            raise Fault(f"Cannot write {self.path}: {reason}") from error

    def lines(self) -> Iterator[tuple[str, int]]:
        """Every complete line with the offset of its end; an incomplete last line is skipped."""
        if not self.path.exists():
            return
        end = 0
        with self.path.open("rb") as file:
            for raw in file:
                end += len(raw)
                if raw.endswith(b"\n"):
                    yield raw.decode("utf-8", "replace"), end

    def truncate(self, end: int) -> None:
        """Remove everything after offset `end`."""
        if self.path.exists() and self.path.stat().st_size > end:
            os.truncate(self.path, end)


def escape_invalid_utf8(text: str) -> str:
    """Text that JSON can carry: characters that UTF-8 cannot encode are escaped."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def _write_whole(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    if written < len(data):
        os.ftruncate(fd, os.lseek(fd, 0, os.SEEK_END) - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
