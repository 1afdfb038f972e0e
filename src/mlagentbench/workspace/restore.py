"""Restores a folder to its state at a step."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from blake3 import blake3

from mlagentbench.workspace.manifest import Entry, State
from mlagentbench.workspace.scan import Signature, compute_signature
from mlagentbench.workspace.tree import (
    CREATE_FLAGS,
    PERMISSION_BITS,
    TreeWalker,
    read_chunks,
    remove_tree,
    set_owner_and_mode,
    write_all,
)

KIND_BY_FILE_TYPE = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}

ReadContentChunks = Callable[[str, Entry], Iterator[bytes]]


def restore_state(
    root: Path,
    state: State,
    read_content: ReadContentChunks,
    unchanged: Mapping[str, Signature],
    owner: int | None,
) -> None:
    """Remove what is not in `state` and write what is; skip files whose signature is in `unchanged`."""
    # Closed to other users, who must not run a set-uid file of the agent.
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folders = sorted(path for path, entry in state.items() if entry.kind == "folder")
    with TreeWalker(root, required_mode=0o700) as walker:
        for folder in ["", *folders]:
            _remove_unwanted(_ensure_folder(walker, folder), folder, state)
        for path, entry in state.items():
            if entry.kind == "link":
                _restore_link(walker, path, entry, owner)
            elif entry.kind == "file" and not _is_up_to_date(walker, path, entry, unchanged.get(path), owner):
                _restore_file(walker, path, read_content(path, entry), entry, owner)
        for folder in reversed(folders):
            set_owner_and_mode(walker.open_folder(folder), owner, state[folder].mode)
        walker.relaxed_modes.clear()
        set_owner_and_mode(walker.open_folder(""), owner, stat.S_IMODE(root.lstat().st_mode) | 0o700)


def _ensure_folder(walker: TreeWalker, folder: str) -> int:
    parent, _, name = folder.rpartition("/")
    fd = walker.open_folder(parent)
    if folder and _lstat_or_none(name, fd) is None:
        os.mkdir(name, 0o700, dir_fd=fd)
    return walker.open_folder(folder)


def _remove_unwanted(fd: int, folder: str, state: State) -> None:
    with os.scandir(fd) as entries:
        existing = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
    for name, mode in existing:
        entry = state.get(f"{folder}/{name}" if folder else name)
        if entry is None or entry.kind != KIND_BY_FILE_TYPE.get(stat.S_IFMT(mode)):
            remove_tree(name, fd)


def _restore_link(walker: TreeWalker, path: str, entry: Entry, owner: int | None) -> None:
    folder, _, name = path.rpartition("/")
    fd = walker.open_folder(folder)
    if _lstat_or_none(name, fd) is not None and os.readlink(name, dir_fd=fd) != entry.target:
        os.unlink(name, dir_fd=fd)
    if _lstat_or_none(name, fd) is None:
        os.symlink(entry.target, name, dir_fd=fd)
    if owner is not None:
        os.chown(name, owner, owner, dir_fd=fd, follow_symlinks=False)


def _is_up_to_date(
    walker: TreeWalker, path: str, entry: Entry, unchanged: Signature | None, owner: int | None
) -> bool:
    folder, _, name = path.rpartition("/")
    status = _lstat_or_none(name, walker.open_folder(folder))
    if status is None or status.st_size != entry.size:
        return False
    is_owned = owner is None or (status.st_uid, status.st_gid) == (owner, owner)
    signature_matches = unchanged == compute_signature(status)
    if signature_matches and is_owned:
        return True
    fd = walker.open_file(path)
    try:
        if not signature_matches and _hash_content(fd, entry.size) != entry.hash:
            return False
        if not is_owned or stat.S_IMODE(status.st_mode) != entry.mode:
            set_owner_and_mode(fd, owner, entry.mode)
        return True
    finally:
        os.close(fd)


def _hash_content(fd: int, size: int) -> str:
    digest = blake3()
    for chunk in read_chunks(fd, size):
        digest.update(chunk)
    return digest.hexdigest()


def _restore_file(
    walker: TreeWalker, path: str, content: Iterator[bytes], entry: Entry, owner: int | None
) -> None:
    folder, _, name = path.rpartition("/")
    parent_fd = walker.open_folder(folder)
    if _lstat_or_none(name, parent_fd) is not None:
        os.unlink(name, dir_fd=parent_fd)  # not overwritten: the file may have other hard links
    fd = os.open(name, CREATE_FLAGS, 0o600, dir_fd=parent_fd)
    try:
        for chunk in content:
            write_all(fd, chunk)
        set_owner_and_mode(fd, owner, entry.mode & PERMISSION_BITS)
    except BaseException:
        os.unlink(name, dir_fd=parent_fd)
        raise
    finally:
        os.close(fd)


def _lstat_or_none(name: str, parent_fd: int) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=parent_fd)
    except FileNotFoundError:
        return None
