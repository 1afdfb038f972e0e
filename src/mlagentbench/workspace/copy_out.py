"""Copies what an agent left in a folder to the host; links and special files are left out."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from mlagentbench.errors import ActionError
from mlagentbench.workspace.paths import format_path, format_size, normalize_path
from mlagentbench.workspace.tree import TreeWalker, read_chunks, write_all

MAX_FILE_BYTES = 8 << 30  # a sparse file may claim to be huge, and its copy would be


def copy_out(
    root: Path, path: str, target: Path, is_excluded: Callable[[str], bool] = lambda path: False
) -> None:
    """Copy a file or a folder.

    Args:
        root: The folder that the agent's processes could change.
        path: The file or folder in it, as the agent writes it.
        target: Where the copy goes. Existing files are replaced.
        is_excluded: Whether to leave out a path, which is relative to the copied folder.

    Raises:
        ActionError: The path leads out of the folder, or a file is too big.
        OSError: There is no such file or folder.
    """
    with TreeWalker(root, required_mode=0o500) as walker:
        source = normalize_path(path)
        if source and stat.S_ISREG(_lstat(walker, source).st_mode):
            _copy_file(walker, source, target)
            return
        prefix = f"{source}/" if source else ""
        for relative in _walk(walker, source, target, is_excluded):
            _copy_file(walker, prefix + relative, target / relative)


def _walk(walker: TreeWalker, source: str, target: Path, is_excluded: Callable[[str], bool]) -> Iterator[str]:
    """Yield the files below a folder, and create their folders in `target`."""
    pending = [""]
    while pending:
        folder = pending.pop()
        (target / folder).mkdir(parents=True, exist_ok=True)
        with os.scandir(walker.open_folder("/".join(filter(None, (source, folder))))) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
        for name, mode in sorted(found):
            relative = f"{folder}/{name}" if folder else name
            if is_excluded(relative):
                continue
            if stat.S_ISDIR(mode):
                pending.append(relative)
            elif stat.S_ISREG(mode):
                yield relative


def _lstat(walker: TreeWalker, path: str) -> os.stat_result:
    folder, _, name = path.rpartition("/")
    return os.lstat(name, dir_fd=walker.open_folder(folder))


def _copy_file(walker: TreeWalker, path: str, target: Path) -> None:
    fd = walker.open_file(path)
    try:
        status = os.fstat(fd)
        if status.st_size > MAX_FILE_BYTES:
            raise ActionError(f"{format_path(path)} is too big to copy ({format_size(status.st_size)})")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # never written through, in case it is a link
        with target.open("xb", buffering=0) as file:
            for chunk in read_chunks(fd, status.st_size):
                write_all(file.fileno(), chunk)
        target.chmod(0o755 if status.st_mode & 0o100 else 0o644)
    finally:
        os.close(fd)
