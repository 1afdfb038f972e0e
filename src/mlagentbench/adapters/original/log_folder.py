"""One log folder, opened for reading only: no link in it is followed, and what cannot be read is noted."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from mlagentbench.errors import Fault
from mlagentbench.formatting import strip_control_chars
from mlagentbench.workspace.tree import TreeWalker, read_chunks

MAX_FILE_BYTES = 256 << 20  # bytes of one file; what comes after is treated as if it had never been written
LOG_SUBFOLDERS = ("env_log", "agent_log")


class LogFolder:
    """The folder of one run of the original."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root.resolve(), name
        self.notes: list[str] = []

    def add_note(self, what: str) -> None:
        """Remember what could not be taken over."""
        self.notes.append(strip_control_chars(what)[:500])

    def list_names(self, folder: str) -> list[str]:
        """What lies in a folder; nothing if there is no such folder."""
        try:
            with TreeWalker(self.root) as walk:
                return sorted(os.listdir(walk.open_folder(folder)))  # noqa: PTH208 - an open folder has no path
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, Fault) as error:
            self.add_note(f"{folder} cannot be read: {_error_reason(error)}")
            return []

    def read_text(self, path: str, expected: bool = False, max_bytes: int = MAX_FILE_BYTES) -> str:
        """A file's text; empty, and noted, if it cannot be read; one that need not be there is not missed."""
        try:
            with TreeWalker(self.root) as walk:
                fd = walk.open_file(path)
                try:
                    size = os.fstat(fd).st_size
                    data = b"".join(read_chunks(fd, min(size, max_bytes)))
                finally:
                    os.close(fd)
        except FileNotFoundError:
            if expected:
                self.add_note(f"{path} is missing")
            return ""
        except (OSError, Fault) as error:
            self.add_note(f"{path} cannot be read: {_error_reason(error)}")
            return ""
        if expected and not data:
            self.add_note(f"{path} is empty")
        if size > max_bytes:
            self.add_note(f"{path} holds {size:,} bytes, of which the first {max_bytes:,} were read")
        return data.decode("utf-8", "replace")

    def find_subfolder(self, path: str) -> Path | None:
        """A folder inside, if it is one and no link leads there."""
        place = self.root / path
        try:
            if not stat.S_ISDIR(place.lstat().st_mode):
                raise NotADirectoryError(20, "it is no folder")
        except FileNotFoundError:
            return None
        except OSError as error:
            self.add_note(f"{path} was left out: {_error_reason(error)}")
            return None
        if place.resolve() != place:
            self.add_note(f"{path} was left out: it lies behind a link")
            return None
        return place


def _error_reason(error: OSError | Fault) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def find_log_folders(path: Path) -> Iterator[LogFolder]:
    """Every log folder at or below `path`, in the order of their names."""
    path = path.parent if path.name in LOG_SUBFOLDERS else path
    for parent, folders, _ in os.walk(path):
        folders.sort()
        if set(LOG_SUBFOLDERS) & {name for name in folders if not Path(parent, name).is_symlink()}:
            folders.clear()  # what an agent left is no log
            inner = Path(parent).relative_to(path)
            yield LogFolder(Path(parent), str(inner) if inner.parts else path.resolve().name)
