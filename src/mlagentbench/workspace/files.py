"""The files the agent may touch, for the harness to read and write without being led astray.

The agent's processes may have left anything here: links to the host, pipes, locked folders.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from mlagentbench.errors import ActionError, Fault
from mlagentbench.workspace.paths import PathPatterns, format_path, format_size, normalize_path
from mlagentbench.workspace.tree import (
    CREATE_FLAGS,
    PERMISSION_BITS,
    TreeWalker,
    os_error_to_fault,
    os_errors_as_faults,
    read_chunks,
    set_owner_and_mode,
    write_all,
)

MAX_READ_BYTES = 16 << 20
MAX_COPY_BYTES = 8 << 30  # a sparse file says it is huge, and its copy would be

MACHINE_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EROFS,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
}
ERRNO_MESSAGES = {
    errno.ENOENT: "{} does not exist",
    errno.EISDIR: "{} is a folder",
    errno.ENOTDIR: "{} is not a folder, or lies below a file",
    errno.ELOOP: "{} is a link or lies behind one, and links are not followed",
    errno.EACCES: "no permission for {}",
    errno.EPERM: "no permission for {}",
    errno.ENAMETOOLONG: "the name {} is too long",
    errno.ENXIO: "{} is not a regular file",
}

EntryKind = Literal["file", "folder", "link", "other"]


class FolderEntry(NamedTuple):
    """One thing in a folder; as text, the way an agent reads it."""

    name: str
    kind: EntryKind
    size: int
    target: str = ""

    def __str__(self) -> str:
        name = format_path(self.name)
        match self.kind:
            case "folder":
                return f"{name}/"
            case "link":
                return f"{name} -> {format_path(self.target)}"
            case "file":
                return f"{name} ({format_size(self.size)})"
        return f"{name} (not a regular file)"


class Workspace:
    """A folder of the agent's, seen from the host; paths are as the agent writes them."""

    def __init__(self, root: Path, read_only: tuple[str, ...] = (), owner: int | None = None) -> None:
        self.root = root.resolve()
        self.owner = owner
        self._read_only = PathPatterns(read_only)

    def read(self, path: str, max_bytes: int = MAX_READ_BYTES) -> tuple[bytes, int]:
        """The first `cap` bytes of a file, and its full size."""
        with (
            _translate_os_errors(path),
            TreeWalker(self.root) as walk,
            _open_file(walk, normalize_path(path)) as fd,
        ):
            size = os.fstat(fd).st_size
            return b"".join(read_chunks(fd, min(max_bytes, size))), size

    def exists(self, path: str) -> bool:
        """Whether there is a file of that name."""
        with _translate_os_errors(path), TreeWalker(self.root) as walk:
            try:
                return _existing_mode(walk, normalize_path(path)) is not None
            except (FileNotFoundError, NotADirectoryError):  # nor is there a folder for it
                return False

    def write(self, path: str, content: bytes) -> None:
        """Puts a file in place, whole or not at all; folders above it are made."""
        with _translate_os_errors(path), TreeWalker(self.root) as walk:
            self._write_file(walk, self._require_writable(path), [content])

    def append(self, path: str, content: bytes) -> None:
        """Adds to the end of a file, or begins one."""
        with _translate_os_errors(path), TreeWalker(self.root) as walk:
            name = self._require_writable(path)
            if _existing_mode(walk, name) is None:
                return self._write_file(walk, name, [content])
            folder, _, last = name.rpartition("/")
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(last, flags, dir_fd=walk.open_folder(folder))
            try:
                size = os.fstat(fd).st_size
                try:
                    write_all(fd, content)
                except OSError:
                    os.ftruncate(fd, size)
                    raise
            finally:
                os.close(fd)

    def copy(self, source: str, target: str, max_bytes: int = MAX_COPY_BYTES) -> None:
        """Copies one file; a new one takes over the mode."""
        with (
            _translate_os_errors(source),
            TreeWalker(self.root) as reading,
            _open_file(reading, normalize_path(source)) as fd,
        ):
            status = os.fstat(fd)
            if status.st_size > max_bytes:
                raise ActionError(f"{format_path(source)} is too big to copy ({format_size(status.st_size)})")
            with _translate_os_errors(target), TreeWalker(self.root) as walk:
                self._write_file(
                    walk, self._require_writable(target), read_chunks(fd, status.st_size), status.st_mode
                )

    def remove(self, path: str) -> None:
        """Removes one file, or a link itself."""
        with _translate_os_errors(path), TreeWalker(self.root) as walk:
            folder, _, name = self._require_writable(path).rpartition("/")
            os.unlink(name, dir_fd=walk.open_folder(folder))

    def list_folder(self, path: str = ".") -> list[FolderEntry]:
        """What a folder holds, sorted by name."""
        with _translate_os_errors(path), TreeWalker(self.root) as walk:
            return _list_folder(walk, normalize_path(path))

    def copy_in(self, source: Path) -> None:
        """Copies a tree of the host's in, read-only files and all; links in it are left out."""
        if not source.is_dir():
            raise Fault(f"{source} is not a folder")
        with os_errors_as_faults(str(source)), TreeWalker(self.root) as walk:
            for folder, inner, names in os.walk(source, onerror=_raise):
                # Compiled leftovers of an earlier run are no part of a starter.
                wanted = (name for name in sorted(inner) if name != "__pycache__")
                inner[:] = [name for name in wanted if not Path(folder, name).is_symlink()]
                here = Path(folder).relative_to(source)
                walk.open_folder("" if here == Path() else str(here), create=True, owner=self.owner)
                for name in sorted(names):
                    self._copy_in_file(walk, Path(folder, name), str(here / name))

    def _copy_in_file(self, walk: TreeWalker, source: Path, path: str) -> None:
        status = source.lstat()
        if not stat.S_ISREG(status.st_mode):
            return
        with source.open("rb", buffering=0) as file:
            # A package may be installed read-only, or for one user: what the agent is given is its own.
            mode = 0o755 if status.st_mode & 0o100 else 0o644
            self._write_file(walk, path, read_chunks(file.fileno(), status.st_size), mode)

    def is_read_only(self, path: str) -> bool:
        """Whether the task forbids changing this path."""
        return self._read_only.matches(normalize_path(path))

    def find_read_only_paths(self) -> list[str]:
        """What there is that the sandbox must bind read-only; a folder stands for all that it holds."""
        found, pending = [], [""]
        with os_errors_as_faults("read-only files"), TreeWalker(self.root, required_mode=0o500) as walk:
            while pending:
                folder = pending.pop()
                for listed in _list_folder(walk, folder):
                    path = f"{folder}/{listed.name}" if folder else listed.name
                    if listed.kind in ("file", "folder") and self._read_only.matches(path):
                        found.append(path)
                    elif listed.kind == "folder" and self._read_only.may_match_below(path):
                        pending.append(path)
        return sorted(found)

    def unlock(self) -> None:
        """Open to its owner what every command must pass through, or none could begin after a script has locked it."""
        self.root.mkdir(exist_ok=True)  # without a sandbox, a script can remove even that
        above = {str(folder) for path in self.find_read_only_paths() for folder in Path(path).parents} - {"."}
        with os_errors_as_faults("the workspace"), TreeWalker(self.root, required_mode=0o700) as walk:
            for folder in ["", *sorted(above)]:
                fd = walk.open_folder(folder)
                mode = stat.S_IMODE(os.fstat(fd).st_mode)
                if mode & 0o700 != 0o700:
                    os.fchmod(fd, mode | 0o700)
            walk.relaxed_modes.clear()  # they stay open

    def _require_writable(self, given: str) -> str:
        path = normalize_path(given)
        if not path:
            raise ActionError(f"{format_path(given)} is a folder")
        if self._read_only.matches(path):
            raise ActionError(f"{format_path(given)} is read-only")
        if self._read_only.names_path_below(path):
            raise ActionError(f"{format_path(given)} is read-only: it is a folder that holds read-only files")
        return path

    def _write_file(self, walk: TreeWalker, path: str, content: Iterable[bytes], mode: int = 0o644) -> None:
        folder, _, name = path.rpartition("/")
        above = walk.open_folder(folder, create=True, owner=self.owner)
        old = _existing_mode(walk, path)
        temporary = f".{secrets.token_hex(8)}.part"
        fd = os.open(temporary, CREATE_FLAGS, 0o600, dir_fd=above)
        try:
            for chunk in content:
                write_all(fd, chunk)
            set_owner_and_mode(fd, self.owner, mode if old is None else old)
            os.rename(temporary, name, src_dir_fd=above, dst_dir_fd=above)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=above)
            raise
        finally:
            os.close(fd)


@contextmanager
def _open_file(walk: TreeWalker, path: str) -> Iterator[int]:
    if not path:
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    fd = walk.open_file(path)
    try:
        yield fd
    finally:
        os.close(fd)


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def _translate_os_errors(given: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in MACHINE_ERRNOS:
            raise os_error_to_fault(error, format_path(given)) from error
        sentence = ERRNO_MESSAGES.get(error.errno or 0, f"{{}}: {error.strerror}")
        raise ActionError(sentence.format(format_path(given))) from error


def _existing_mode(walk: TreeWalker, path: str) -> int | None:
    """The mode of the file to be replaced, if there is one; anything but a file may not be replaced."""
    folder, _, name = path.rpartition("/")
    try:
        mode = os.lstat(name, dir_fd=walk.open_folder(folder)).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        wrong = {stat.S_IFDIR: errno.EISDIR, stat.S_IFLNK: errno.ELOOP}.get(stat.S_IFMT(mode), errno.ENXIO)
        raise OSError(wrong, os.strerror(wrong))
    return mode & PERMISSION_BITS


def _list_folder(walk: TreeWalker, folder: str) -> list[FolderEntry]:
    found = []
    fd = walk.open_folder(folder)
    with os.scandir(fd) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                found.append(FolderEntry(entry.name, "link", 0, os.readlink(entry.name, dir_fd=fd)))
            elif stat.S_ISDIR(status.st_mode):
                found.append(FolderEntry(entry.name, "folder", 0))
            else:
                kind: EntryKind = "file" if stat.S_ISREG(status.st_mode) else "other"
                found.append(FolderEntry(entry.name, kind, status.st_size))
    return sorted(found)
