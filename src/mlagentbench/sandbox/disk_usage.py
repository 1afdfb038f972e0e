"""Measures folders that are in use: follows no links, and enters folders whose mode forbids it."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

MAX_FOLDER_DEPTH = 100  # no legitimate workspace is deeper, and walking deep folders gets slower and slower
MAX_FILES_TO_COUNT = 100_000
OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DiskUsage:
    """Counts bytes and files until a limit is exceeded.

    A sparse file counts with its apparent size, because the next snapshot would have to read all of it.
    """

    def __init__(self, folders: Sequence[Path], max_bytes: int, max_files: int) -> None:
        self.bytes_left, self._files_left, self.is_over_limit = max_bytes, max_files, False
        for folder in folders:
            if not self.is_over_limit:
                self._add_folder(str(folder), None, 0)

    def _add_folder(self, name: str, parent: int | None, depth: int) -> None:
        with suppress(OSError):  # it may have been removed meanwhile
            fd, mode = _open_folder(name, parent)
            try:
                with os.scandir(fd) as entries:
                    for entry in entries:
                        self._count_entry(entry, fd, depth)
                        if self.is_over_limit:
                            break
            finally:
                if mode is not None:
                    os.fchmod(fd, mode)
                os.close(fd)

    def _count_entry(self, entry: "os.DirEntry[str]", parent: int, depth: int) -> None:
        self._files_left -= 1
        if entry.is_dir(follow_symlinks=False):
            self.is_over_limit = depth == MAX_FOLDER_DEPTH
            if not self.is_over_limit:
                self._add_folder(entry.name, parent, depth + 1)
        else:
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                self.bytes_left -= max(status.st_size, status.st_blocks * 512)
        self.is_over_limit = self.is_over_limit or self.bytes_left <= 0 or self._files_left < 0


def folder_bytes(folder: Path) -> int:
    """Bytes in a folder; more files than can be counted quickly are more than any limit."""
    usage = DiskUsage([folder], sys.maxsize, MAX_FILES_TO_COUNT)
    return sys.maxsize if usage.is_over_limit else sys.maxsize - usage.bytes_left


def _open_folder(name: str, parent: int | None) -> tuple[int, int | None]:
    """Open a folder. If that needs a chmod, also return the mode that must be restored."""
    with suppress(PermissionError):
        return os.open(name, OPEN_FOLDER_FLAGS, dir_fd=parent), None
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    try:
        mode = os.fstat(handle).st_mode & 0o7777
        Path(f"/proc/self/fd/{handle}").chmod(mode | 0o700)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), mode
    finally:
        os.close(handle)
