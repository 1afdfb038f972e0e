"""One log folder, opened for reading only: no link in it is followed, and what cannot be read is noted."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from mlagentbench.errors import Fault
from mlagentbench.words import plain
from mlagentbench.workspace.tree import Walk, chunks

CAP = 256 << 20  # bytes of one file; what comes after is treated as if it had never been written
ROOMS = ("env_log", "agent_log")


class Logs:
    """The folder of one run of the original."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root.resolve(), name
        self.notes: list[str] = []

    def note(self, what: str) -> None:
        """Remember what could not be taken over."""
        self.notes.append(plain(what)[:500])

    def names(self, folder: str) -> list[str]:
        """What lies in a folder; nothing if there is no such folder."""
        try:
            with Walk(self.root) as walk:
                return sorted(os.listdir(walk.folder(folder)))  # noqa: PTH208 - an open folder has no path
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, Fault) as error:
            self.note(f"{folder} cannot be read: {_why(error)}")
            return []

    def text(self, path: str, expected: bool = False, cap: int = CAP) -> str:
        """A file's text; empty, and noted, if it cannot be read; one that need not be there is not missed."""
        try:
            with Walk(self.root) as walk:
                fd = walk.file(path)
                try:
                    size = os.fstat(fd).st_size
                    data = b"".join(chunks(fd, min(size, cap)))
                finally:
                    os.close(fd)
        except FileNotFoundError:
            if expected:
                self.note(f"{path} is missing")
            return ""
        except (OSError, Fault) as error:
            self.note(f"{path} cannot be read: {_why(error)}")
            return ""
        if expected and not data:
            self.note(f"{path} is empty")
        if size > cap:
            self.note(f"{path} holds {size:,} bytes, of which the first {cap:,} were read")
        return data.decode("utf-8", "replace")

    def folder(self, path: str) -> Path | None:
        """A folder inside, if it is one and no link leads there."""
        place = self.root / path
        try:
            if not stat.S_ISDIR(place.lstat().st_mode):
                raise NotADirectoryError(20, "it is no folder")
        except FileNotFoundError:
            return None
        except OSError as error:
            self.note(f"{path} was left out: {_why(error)}")
            return None
        if place.resolve() != place:
            self.note(f"{path} was left out: it lies behind a link")
            return None
        return place


def _why(error: OSError | Fault) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def find(path: Path) -> Iterator[Logs]:
    """Every log folder at or below `path`, in the order of their names."""
    path = path.parent if path.name in ROOMS else path
    for parent, folders, _ in os.walk(path):
        folders.sort()
        if set(ROOMS) & {name for name in folders if not Path(parent, name).is_symlink()}:
            folders.clear()  # what an agent left is no log
            inner = Path(parent).relative_to(path)
            yield Logs(Path(parent), str(inner) if inner.parts else path.resolve().name)
