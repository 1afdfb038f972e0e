"""Makes a folder exactly what it was at a step."""

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
    wanted: State,
    content: ReadContentChunks,
    unchanged: Mapping[str, Signature],
    owner: int | None,
) -> None:
    """Removes what is not wanted and writes what is; files that bear their `unchanged` signature are left."""
    root.mkdir(
        mode=0o700, parents=True, exist_ok=True
    )  # a set-uid file of the agent's is nobody else's to run
    folders = sorted(path for path, entry in wanted.items() if entry.kind == "folder")
    with TreeWalker(root, required_mode=0o700) as walk:
        for folder in ["", *folders]:
            _remove_unwanted(_ensure_folder(walk, folder), folder, wanted)
        for path, entry in wanted.items():
            if entry.kind == "link":
                _restore_link(walk, path, entry, owner)
            elif entry.kind == "file" and not _is_up_to_date(walk, path, entry, unchanged.get(path), owner):
                _restore_file(walk, path, content(path, entry), entry, owner)
        for folder in reversed(folders):
            set_owner_and_mode(walk.open_folder(folder), owner, wanted[folder].mode)
        walk.relaxed_modes.clear()
        set_owner_and_mode(walk.open_folder(""), owner, stat.S_IMODE(root.lstat().st_mode) | 0o700)


def _ensure_folder(walk: TreeWalker, folder: str) -> int:
    above, _, name = folder.rpartition("/")
    fd = walk.open_folder(above)
    if folder and _lstat_or_none(name, fd) is None:
        os.mkdir(name, 0o700, dir_fd=fd)
    return walk.open_folder(folder)


def _remove_unwanted(fd: int, folder: str, wanted: State) -> None:
    with os.scandir(fd) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
    for name, mode in found:
        entry = wanted.get(f"{folder}/{name}" if folder else name)
        if entry is None or entry.kind != KIND_BY_FILE_TYPE.get(stat.S_IFMT(mode)):
            remove_tree(name, fd)


def _restore_link(walk: TreeWalker, path: str, entry: Entry, owner: int | None) -> None:
    folder, _, name = path.rpartition("/")
    fd = walk.open_folder(folder)
    if _lstat_or_none(name, fd) is not None and os.readlink(name, dir_fd=fd) != entry.target:
        os.unlink(name, dir_fd=fd)
    if _lstat_or_none(name, fd) is None:
        os.symlink(entry.target, name, dir_fd=fd)
    if owner is not None:
        os.chown(name, owner, owner, dir_fd=fd, follow_symlinks=False)


def _is_up_to_date(
    walk: TreeWalker, path: str, entry: Entry, seen: Signature | None, owner: int | None
) -> bool:
    folder, _, name = path.rpartition("/")
    status = _lstat_or_none(name, walk.open_folder(folder))
    if status is None or status.st_size != entry.size:
        return False
    owned = owner is None or (status.st_uid, status.st_gid) == (owner, owner)
    if seen == compute_signature(status) and owned:
        return True
    fd = walk.open_file(path)
    try:
        if seen != compute_signature(status) and _hash_content(fd, entry.size) != entry.hash:
            return False
        if not owned or stat.S_IMODE(status.st_mode) != entry.mode:
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
    walk: TreeWalker, path: str, content: Iterator[bytes], entry: Entry, owner: int | None
) -> None:
    folder, _, name = path.rpartition("/")
    above = walk.open_folder(folder)
    if _lstat_or_none(name, above) is not None:
        os.unlink(name, dir_fd=above)  # not written in place: it may have a second name
    fd = os.open(name, CREATE_FLAGS, 0o600, dir_fd=above)
    try:
        for chunk in content:
            write_all(fd, chunk)
        set_owner_and_mode(fd, owner, entry.mode & PERMISSION_BITS)
    except BaseException:
        os.unlink(name, dir_fd=above)
        raise
    finally:
        os.close(fd)


def _lstat_or_none(name: str, above: int) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=above)
    except FileNotFoundError:
        return None
