"""Scans a workspace by file status only, without reading content."""

import os
from collections.abc import Set
from stat import S_IFDIR, S_IFLNK, S_IFREG, S_IFSOCK
from typing import NamedTuple

from mlagentbench.errors import BenchError
from mlagentbench.workspace.paths import MAX_FOLDER_DEPTH, format_path, format_size
from mlagentbench.workspace.tree import TreeWalker

FILE_TYPE_MASK = 0o170000
FILE_TYPES = (S_IFREG, S_IFLNK)
RACY_WINDOW_NS = 20_000_000  # file timestamps of the kernel advance every 10 ms at worst

# Mode, size, mtime, ctime, inode: equal signatures mean equal content. For a folder only the mode counts.
Signature = tuple[int, int, int, int, int]


class WorkspaceTooLarge(BenchError):
    """The workspace, or its history, exceeds a limit."""


class WorkspaceLimits(NamedTuple):
    """How large a workspace may be; None means no limit."""

    max_bytes: int | None = None
    max_files: int | None = None


def compute_signature(status: os.stat_result) -> Signature:
    """Return a signature that changes with the file, without reading it."""
    if status.st_mode & FILE_TYPE_MASK == S_IFDIR:
        return (status.st_mode, 0, 0, 0, 0)
    return (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def scan_workspace(walker: TreeWalker, limits: WorkspaceLimits) -> dict[str, Signature]:
    """Return the signatures of all files, folders and links; skip pipes and devices, and remove sockets.

    Through a socket, commands of different steps could pass open folders to each other. Such a folder shows
    what was hidden under a mount once the sandbox that opened it is gone.

    Raises:
        WorkspaceTooLarge: If the workspace exceeds a limit.
    """
    # This loop runs after every step: compute_signature() is inlined, and no temporary objects are created.
    signatures: dict[str, Signature] = {}
    max_files = limits.max_files if limits.max_files is not None else 1 << 62
    max_bytes = limits.max_bytes if limits.max_bytes is not None else 1 << 62
    files = total = 0
    pending = [""]
    while pending:
        folder = pending.pop()
        prefix = f"{folder}/" if folder else ""
        if prefix.count("/") >= MAX_FOLDER_DEPTH:
            raise WorkspaceTooLarge(
                f"the workspace has folders nested deeper than {MAX_FOLDER_DEPTH}: {format_path(folder, 60)}"
            )
        with os.scandir(walker.open_folder(folder)) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                mode = status.st_mode
                kind = mode & FILE_TYPE_MASK
                files += 1
                if kind in FILE_TYPES:
                    total += (size := status.st_size)
                    signatures[prefix + entry.name] = (
                        mode,
                        size,
                        status.st_mtime_ns,
                        status.st_ctime_ns,
                        status.st_ino,
                    )
                elif kind == S_IFDIR:
                    signatures[prefix + entry.name] = (mode, 0, 0, 0, 0)
                    pending.append(prefix + entry.name)
                elif kind == S_IFSOCK:
                    os.unlink(entry.name, dir_fd=walker.open_folder(folder))
                if files > max_files:
                    raise WorkspaceTooLarge(f"the workspace has more than {max_files:,} files")
    if total > max_bytes:
        raise WorkspaceTooLarge(
            f"the workspace has {format_size(total)}, which is more than {format_size(max_bytes)}"
        )
    return signatures


def reliable_signatures(
    signatures: dict[str, Signature], started_ns: int, mapped_inodes: Set[int]
) -> dict[str, Signature]:
    """Return the signatures that any later change of the file is sure to change.

    A file that was just written is left out: it can change again within the same tick of the clock. So is a
    memory-mapped file: while a page waits to be written to disk, the kernel does not notice further changes
    to it.
    """
    latest_ns = started_ns - RACY_WINDOW_NS
    return {
        path: signature
        for path, signature in signatures.items()
        if signature[3] < latest_ns and signature[4] not in mapped_inodes
    }
