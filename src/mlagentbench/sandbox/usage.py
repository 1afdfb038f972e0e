"""How much a folder holds while somebody is at work in it: no link is followed, and no lock respected."""

import os
from contextlib import suppress
from pathlib import Path

DEPTH = 100  # folders within folders; nothing honest goes deeper, and walking there takes ever longer
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Usage:
    """Counts until a limit is overstepped; apparent sizes count, lest a sparse file make the next snapshot endless."""

    def __init__(self, folder: Path, size: int, files: int) -> None:
        self.left, self._files, self.over = size, files, False
        self._add(str(folder), None, 0)

    def _add(self, name: str, above: int | None, depth: int) -> None:
        with suppress(OSError):  # it may have gone meanwhile
            fd, mode = _open(name, above)
            try:
                with os.scandir(fd) as entries:
                    for entry in entries:
                        self._count(entry, fd, depth)
                        if self.over:
                            break
            finally:
                if mode is not None:
                    os.fchmod(fd, mode)
                os.close(fd)

    def _count(self, entry: "os.DirEntry[str]", above: int, depth: int) -> None:
        self._files -= 1
        if entry.is_dir(follow_symlinks=False):
            self.over = depth == DEPTH
            if not self.over:
                self._add(entry.name, above, depth + 1)
        else:
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                self.left -= max(status.st_size, status.st_blocks * 512)
        self.over = self.over or self.left <= 0 or self._files < 0


def _open(name: str, above: int | None) -> tuple[int, int | None]:
    """The folder, and the mode that it must be given back if it was locked."""
    with suppress(PermissionError):
        return os.open(name, FOLDER, dir_fd=above), None
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above)
    try:
        mode = os.fstat(handle).st_mode & 0o7777
        Path(f"/proc/self/fd/{handle}").chmod(mode | 0o700)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), mode
    finally:
        os.close(handle)
