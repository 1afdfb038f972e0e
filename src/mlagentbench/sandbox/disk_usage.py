"""How much a folder holds while somebody is at work in it: no link is followed, and no lock respected."""

import os
from contextlib import suppress
from pathlib import Path

MAX_FOLDER_DEPTH = (
    100  # folders within folders; nothing honest goes deeper, and walking there takes ever longer
)
OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DiskUsage:
    """Counts until a limit is overstepped; apparent sizes count, lest a sparse file make the next snapshot endless."""

    def __init__(self, folder: Path, size: int, files: int) -> None:
        self.bytes_left, self._files_left, self.is_over_limit = size, files, False
        self._add_folder(str(folder), None, 0)

    def _add_folder(self, name: str, above: int | None, depth: int) -> None:
        with suppress(OSError):  # it may have gone meanwhile
            fd, mode = _open_folder(name, above)
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

    def _count_entry(self, entry: "os.DirEntry[str]", above: int, depth: int) -> None:
        self._files_left -= 1
        if entry.is_dir(follow_symlinks=False):
            self.is_over_limit = depth == MAX_FOLDER_DEPTH
            if not self.is_over_limit:
                self._add_folder(entry.name, above, depth + 1)
        else:
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                self.bytes_left -= max(status.st_size, status.st_blocks * 512)
        self.is_over_limit = self.is_over_limit or self.bytes_left <= 0 or self._files_left < 0


def _open_folder(name: str, above: int | None) -> tuple[int, int | None]:
    """The folder, and the mode that it must be given back if it was locked."""
    with suppress(PermissionError):
        return os.open(name, OPEN_FOLDER_FLAGS, dir_fd=above), None
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above)
    try:
        mode = os.fstat(handle).st_mode & 0o7777
        Path(f"/proc/self/fd/{handle}").chmod(mode | 0o700)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), mode
    finally:
        os.close(handle)
