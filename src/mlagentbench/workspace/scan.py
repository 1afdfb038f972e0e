"""One look at everything in a workspace, by status only: no content is read."""

import os
from collections.abc import Set
from stat import S_IFDIR, S_IFLNK, S_IFREG, S_IFSOCK
from typing import NamedTuple

from mlagentbench.errors import BenchError
from mlagentbench.workspace.paths import MAX_FOLDER_DEPTH, format_path, format_size
from mlagentbench.workspace.tree import TreeWalker

FILE_TYPE_MASK = 0o170000
FILE_TYPES = (S_IFREG, S_IFLNK)
RACY_WINDOW_NS = 20_000_000  # ns; the kernel's clock for files ticks every 10 ms at worst

# Mode, size, mtime, ctime, inode: equal ones mean equal content. Of a folder only the mode counts.
Signature = tuple[int, int, int, int, int]


class WorkspaceTooLarge(BenchError):
    """The workspace holds more than may be recorded."""


class WorkspaceLimits(NamedTuple):
    """What a workspace may hold; None means as much as there is."""

    max_bytes: int | None = None
    max_files: int | None = None


def compute_signature(status: os.stat_result) -> Signature:
    """What tells a file from a changed one without reading it."""
    if status.st_mode & FILE_TYPE_MASK == S_IFDIR:
        return (status.st_mode, 0, 0, 0, 0)
    return (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def scan_workspace(walk: TreeWalker, bounds: WorkspaceLimits) -> dict[str, Signature]:
    """Signatures of all files, folders and links; pipes and devices are passed over, and sockets removed.

    Commands of different steps could meet at a socket and hand each other open folders, which see what was mounted over
    once the sandbox that opened them is gone.
    """
    # The hot loop of every step: signature() is written out, and nothing is made that is not kept.
    found: dict[str, Signature] = {}
    most_files = bounds.max_files if bounds.max_files is not None else 1 << 62
    most_bytes = bounds.max_bytes if bounds.max_bytes is not None else 1 << 62
    files = total = 0
    pending = [""]
    while pending:
        folder = pending.pop()
        prefix = f"{folder}/" if folder else ""
        if prefix.count("/") >= MAX_FOLDER_DEPTH:
            raise WorkspaceTooLarge(
                f"the workspace is deeper than {MAX_FOLDER_DEPTH} folders: {format_path(folder, 60)}"
            )
        with os.scandir(walk.open_folder(folder)) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                mode = status.st_mode
                kind = mode & FILE_TYPE_MASK
                files += 1
                if kind in FILE_TYPES:
                    total += (size := status.st_size)
                    found[prefix + entry.name] = (
                        mode,
                        size,
                        status.st_mtime_ns,
                        status.st_ctime_ns,
                        status.st_ino,
                    )
                elif kind == S_IFDIR:
                    found[prefix + entry.name] = (mode, 0, 0, 0, 0)
                    pending.append(prefix + entry.name)
                elif kind == S_IFSOCK:
                    os.unlink(entry.name, dir_fd=walk.open_folder(folder))
                if files > most_files:
                    raise WorkspaceTooLarge(f"the workspace holds more than {most_files:,} files")
    if total > most_bytes:
        raise WorkspaceTooLarge(
            f"the workspace holds {format_size(total)}, which is more than {format_size(most_bytes)}"
        )
    return found


def reliable_signatures(found: dict[str, Signature], started: int, mapped: Set[int]) -> dict[str, Signature]:
    """Signatures that any later change will change: not of a file just written, which can change within the same tick.

    Nor of one that is mapped into somebody's memory: as long as a page waits to be written to disk, the kernel does
    not hear of further changes to it.
    """
    latest = started - RACY_WINDOW_NS
    return {path: seen for path, seen in found.items() if seen[3] < latest and seen[4] not in mapped}
