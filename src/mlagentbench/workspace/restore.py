"""Makes a folder exactly what it was at a step."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from blake3 import blake3

from mlagentbench.workspace.manifest import Entry, State
from mlagentbench.workspace.scan import Signature, signature
from mlagentbench.workspace.tree import CREATE, PLAIN, Walk, chunks, own, remove, write_all

KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}

Content = Callable[[str, Entry], Iterator[bytes]]


def lay_out(root: Path, wanted: State, content: Content, unchanged: Mapping[str, Signature], owner: int | None) -> None:
    """Removes what is not wanted and writes what is; files that bear their `unchanged` signature are left."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)  # a set-uid file of the agent's is nobody else's to run
    folders = sorted(path for path, entry in wanted.items() if entry.kind == "folder")
    with Walk(root, needs=0o700) as walk:
        for folder in ["", *folders]:
            _clear(_made(walk, folder), folder, wanted)
        for path, entry in wanted.items():
            if entry.kind == "link":
                _link(walk, path, entry, owner)
            elif entry.kind == "file" and not _is_there(walk, path, entry, unchanged.get(path), owner):
                _write(walk, path, content(path, entry), entry, owner)
        for folder in reversed(folders):
            own(walk.folder(folder), owner, wanted[folder].mode)
        walk.loosened.clear()
        own(walk.folder(""), owner, stat.S_IMODE(root.lstat().st_mode) | 0o700)


def _made(walk: Walk, folder: str) -> int:
    above, _, name = folder.rpartition("/")
    fd = walk.folder(above)
    if folder and _status(name, fd) is None:
        os.mkdir(name, 0o700, dir_fd=fd)
    return walk.folder(folder)


def _clear(fd: int, folder: str, wanted: State) -> None:
    with os.scandir(fd) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
    for name, mode in found:
        entry = wanted.get(f"{folder}/{name}" if folder else name)
        if entry is None or entry.kind != KINDS.get(stat.S_IFMT(mode)):
            remove(name, fd)


def _link(walk: Walk, path: str, entry: Entry, owner: int | None) -> None:
    folder, _, name = path.rpartition("/")
    fd = walk.folder(folder)
    if _status(name, fd) is not None and os.readlink(name, dir_fd=fd) != entry.target:
        os.unlink(name, dir_fd=fd)
    if _status(name, fd) is None:
        os.symlink(entry.target, name, dir_fd=fd)
    if owner is not None:
        os.chown(name, owner, owner, dir_fd=fd, follow_symlinks=False)


def _is_there(walk: Walk, path: str, entry: Entry, seen: Signature | None, owner: int | None) -> bool:
    folder, _, name = path.rpartition("/")
    status = _status(name, walk.folder(folder))
    if status is None or status.st_size != entry.size:
        return False
    owned = owner is None or (status.st_uid, status.st_gid) == (owner, owner)
    if seen == signature(status) and owned:
        return True
    fd = walk.file(path)
    try:
        if seen != signature(status) and _hash(fd, entry.size) != entry.hash:
            return False
        if not owned or stat.S_IMODE(status.st_mode) != entry.mode:
            own(fd, owner, entry.mode)
        return True
    finally:
        os.close(fd)


def _hash(fd: int, size: int) -> str:
    digest = blake3()
    for chunk in chunks(fd, size):
        digest.update(chunk)
    return digest.hexdigest()


def _write(walk: Walk, path: str, content: Iterator[bytes], entry: Entry, owner: int | None) -> None:
    folder, _, name = path.rpartition("/")
    above = walk.folder(folder)
    if _status(name, above) is not None:
        os.unlink(name, dir_fd=above)  # not written in place: it may have a second name
    fd = os.open(name, CREATE, 0o600, dir_fd=above)
    try:
        for chunk in content:
            write_all(fd, chunk)
        own(fd, owner, entry.mode & PLAIN)
    except BaseException:
        os.unlink(name, dir_fd=above)
        raise
    finally:
        os.close(fd)


def _status(name: str, above: int) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=above)
    except FileNotFoundError:
        return None
