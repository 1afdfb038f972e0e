"""Reads one log folder: symlinks are never followed, and whatever cannot be read is noted."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from mlagentbench.errors import Fault
from mlagentbench.formatting import strip_control_chars
from mlagentbench.workspace.tree import TreeWalker, read_chunks

MAX_FILE_BYTES = 256 << 20  # the rest of a larger file is ignored
LOG_SUBFOLDERS = ("env_log", "agent_log")


class LogFolder:
    """The log folder of one run of the original."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root.resolve(), name
        self.notes: list[str] = []

    def add_note(self, note: str) -> None:
        """Record something that could not be imported."""
        self.notes.append(strip_control_chars(note)[:500])

    def list_names(self, folder: str) -> list[str]:
        """The names in a folder; empty if there is no such folder."""
        try:
            with TreeWalker(self.root) as walk:
                return sorted(os.listdir(walk.open_folder(folder)))  # noqa: PTH208 - a file descriptor
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, Fault) as error:
            self.add_note(f"{folder} cannot be read: {_error_reason(error)}")
            return []

    def read_text(self, path: str, expected: bool = False, max_bytes: int = MAX_FILE_BYTES) -> str:
        """The text of a file; empty and noted if it cannot be read, or if it is `expected` and missing."""
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
            self.add_note(f"{path} has {size:,} bytes, of which the first {max_bytes:,} were read")
        return data.decode("utf-8", "replace")

    def find_subfolder(self, path: str) -> Path | None:
        """The path of a subfolder, if it is a folder that is reached without symlinks."""
        folder = self.root / path
        try:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise NotADirectoryError(20, "it is not a folder")
        except FileNotFoundError:
            return None
        except OSError as error:
            self.add_note(f"{path} was skipped: {_error_reason(error)}")
            return None
        if folder.resolve() != folder:
            self.add_note(f"{path} was skipped: its path contains a symlink")
            return None
        return folder


def _error_reason(error: OSError | Fault) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def find_log_folders(path: Path) -> Iterator[LogFolder]:
    """Find all log folders at or below `path`, sorted by name."""
    path = path.parent if path.name in LOG_SUBFOLDERS else path
    for parent, folders, _ in os.walk(path):
        folders.sort()
        if set(LOG_SUBFOLDERS) & {name for name in folders if not Path(parent, name).is_symlink()}:
            folders.clear()  # files of the agent may look like logs
            relative = Path(parent).relative_to(path)
            yield LogFolder(Path(parent), str(relative) if relative.parts else path.resolve().name)
