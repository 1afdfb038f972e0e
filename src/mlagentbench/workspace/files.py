"""Reads and writes an agent's workspace safely from the host.

The agent's processes may leave anything there: links to the host, pipes, locked folders.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from mlagentbench.errors import ActionError, Fault
from mlagentbench.workspace.paths import PathPatterns, format_path, format_size, normalize_path
from mlagentbench.workspace.tree import (
    CHUNK_BYTES,
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
MAX_OVERWRITE_BYTES = 1 << 16  # larger files are rare, and worth being replaced as a whole
BYTES_PER_BLOCK = 512  # of st_blocks
MAX_COPY_BYTES = 8 << 30  # a sparse file may claim to be huge, and its copy would be

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
    errno.ENOTDIR: "{} is not a folder, or is below a file",
    errno.ELOOP: "{} is a link or below one, and links are not followed",
    errno.EACCES: "permission denied: {}",
    errno.EPERM: "permission denied: {}",
    errno.ENAMETOOLONG: "the name {} is too long",
    errno.ENXIO: "{} is not a regular file",
}

EntryKind = Literal["file", "folder", "link", "other"]


class FolderEntry(NamedTuple):
    """One entry of a folder; str() gives the line that an agent sees."""

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
    """An agent's folder on the host; paths are given as the agent writes them.

    Every method raises an ActionError, with a message for the agent, if the path cannot be used, and a Fault
    if the machine fails, for example because the disk is full.

    Args:
        root: The folder on the host.
        read_only: Path patterns that the task protects from changes.
        owner: The user and group id of files that are written; by default they belong to this process.
    """

    def __init__(self, root: Path, read_only: tuple[str, ...] = (), owner: int | None = None) -> None:
        self.root = root.resolve()
        self.owner = owner
        self._read_only = PathPatterns(read_only)

    def read(self, path: str, max_bytes: int = MAX_READ_BYTES) -> tuple[bytes, int]:
        """Return the first `max_bytes` bytes of a file, and its full size."""
        with (
            _translate_os_errors(path),
            TreeWalker(self.root) as walker,
            _open_file(walker, normalize_path(path)) as fd,
        ):
            size = os.fstat(fd).st_size
            return b"".join(read_chunks(fd, min(max_bytes, size))), size

    def exists(self, path: str) -> bool:
        """Tell whether there is a file with that path."""
        with _translate_os_errors(path), TreeWalker(self.root) as walker:
            try:
                return _existing_mode(walker, normalize_path(path)) is not None
            except (FileNotFoundError, NotADirectoryError):  # its folder does not exist
                return False

    def write(self, path: str, content: bytes) -> None:
        """Write a file; missing folders are created.

        A small file that exists is written in place: a new one needs an inode, and ext4 searches for it among
        all that were deleted in the last minutes. Any other file is replaced once the new one is complete.
        """
        with _translate_os_errors(path), TreeWalker(self.root) as walker:
            name = self._require_writable(path)
            if not _overwrite(walker, name, content):
                self._write_file(walker, name, [content])

    def write_stream(self, path: str, file: BinaryIO, executable: bool = False) -> None:
        """Write a file from an open one, atomically and without reading all of it into memory."""
        chunks = iter(partial(file.read, CHUNK_BYTES), b"")
        with _translate_os_errors(path), TreeWalker(self.root) as walker:
            self._write_file(walker, self._require_writable(path), chunks, 0o755 if executable else 0o644)

    def append(self, path: str, content: bytes) -> None:
        """Append to a file, or create it."""
        with _translate_os_errors(path), TreeWalker(self.root) as walker:
            name = self._require_writable(path)
            if _existing_mode(walker, name) is None:
                return self._write_file(walker, name, [content])
            folder, _, base = name.rpartition("/")
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(base, flags, dir_fd=walker.open_folder(folder))
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
        """Copy one file; a new file gets the mode of the source."""
        with (
            _translate_os_errors(source),
            TreeWalker(self.root) as source_walker,
            _open_file(source_walker, normalize_path(source)) as fd,
        ):
            status = os.fstat(fd)
            if status.st_size > max_bytes:
                raise ActionError(f"{format_path(source)} is too big to copy ({format_size(status.st_size)})")
            with _translate_os_errors(target), TreeWalker(self.root) as walker:
                self._write_file(
                    walker, self._require_writable(target), read_chunks(fd, status.st_size), status.st_mode
                )

    def remove(self, path: str) -> None:
        """Remove one file, or a link itself."""
        with _translate_os_errors(path), TreeWalker(self.root) as walker:
            folder, _, name = self._require_writable(path).rpartition("/")
            os.unlink(name, dir_fd=walker.open_folder(folder))

    def list_folder(self, path: str = ".") -> list[FolderEntry]:
        """Return the entries of a folder, sorted by name."""
        with _translate_os_errors(path), TreeWalker(self.root) as walker:
            return _list_folder(walker, normalize_path(path))

    def copy_in(self, source: Path) -> None:
        """Copy a folder of the host into the workspace, including read-only paths; links are skipped."""
        if not source.is_dir():
            raise Fault(f"{source} is not a folder")
        with os_errors_as_faults(str(source)), TreeWalker(self.root) as walker:
            for folder, subfolders, files in os.walk(source, onerror=_raise):
                # Bytecode of an earlier run does not belong to a starter.
                names = (name for name in sorted(subfolders) if name != "__pycache__")
                subfolders[:] = [name for name in names if not Path(folder, name).is_symlink()]
                relative = Path(folder).relative_to(source)
                path = "" if relative == Path() else str(relative)
                walker.open_folder(path, create=True, owner=self.owner)
                for name in sorted(files):
                    self._copy_in_file(walker, Path(folder, name), str(relative / name))

    def _copy_in_file(self, walker: TreeWalker, source: Path, path: str) -> None:
        status = source.lstat()
        if not stat.S_ISREG(status.st_mode):
            return
        with source.open("rb", buffering=0) as file:
            # A package may be installed read-only, or for one user; the agent owns its copy.
            mode = 0o755 if status.st_mode & 0o100 else 0o644
            self._write_file(walker, path, read_chunks(file.fileno(), status.st_size), mode)

    def is_read_only(self, path: str) -> bool:
        """Tell whether the task forbids changing this path."""
        return self._read_only.matches(normalize_path(path))

    def find_read_only_paths(self) -> list[str]:
        """Return the existing paths that the sandbox must mount read-only; a folder covers its content."""
        paths, pending = [], [""]
        with os_errors_as_faults("read-only files"), TreeWalker(self.root, required_mode=0o500) as walker:
            while pending:
                folder = pending.pop()
                for entry in _list_folder(walker, folder):
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.kind in ("file", "folder") and self._read_only.matches(path):
                        paths.append(path)
                    elif entry.kind == "folder" and self._read_only.may_match_below(path):
                        pending.append(path)
        return sorted(paths)

    def unlock(self) -> None:
        """Give the owner access to the folders that every command needs, in case a script locked them."""
        if not self.root.is_dir():  # without a sandbox, a script can remove even the workspace
            self.root.mkdir(exist_ok=True)
        parents: set[str] = set()
        if self._read_only.may_match_in_subfolder:
            paths = self.find_read_only_paths()
            parents = {str(folder) for path in paths for folder in Path(path).parents} - {"."}
        with os_errors_as_faults("the workspace"), TreeWalker(self.root, required_mode=0o700) as walker:
            for folder in ["", *sorted(parents)]:
                fd = walker.open_folder(folder)
                mode = stat.S_IMODE(os.fstat(fd).st_mode)
                if mode & 0o700 != 0o700:
                    os.fchmod(fd, mode | 0o700)
            walker.relaxed_modes.clear()  # keep the new modes

    def _require_writable(self, given_path: str) -> str:
        path = normalize_path(given_path)
        if not path:
            raise ActionError(f"{format_path(given_path)} is a folder")
        if self._read_only.matches(path):
            raise ActionError(f"{format_path(given_path)} is read-only")
        if self._read_only.names_path_below(path):
            raise ActionError(
                f"{format_path(given_path)} is read-only: it is a folder that contains read-only files"
            )
        return path

    def _write_file(self, walker: TreeWalker, path: str, content: Iterable[bytes], mode: int = 0o644) -> None:
        folder, _, name = path.rpartition("/")
        parent = walker.open_folder(folder, create=True, owner=self.owner)
        old_mode = _existing_mode(walker, path)
        temporary = f".{secrets.token_hex(8)}.part"
        fd = os.open(temporary, CREATE_FLAGS, 0o600, dir_fd=parent)
        try:
            for chunk in content:
                write_all(fd, chunk)
            set_owner_and_mode(fd, self.owner, mode if old_mode is None else old_mode)
            if old_mode is not None:
                # ext4 writes a file to disk when it is renamed over another one, which takes milliseconds.
                os.unlink(name, dir_fd=parent)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
        finally:
            os.close(fd)


@contextmanager
def _open_file(walker: TreeWalker, path: str) -> Iterator[int]:
    if not path:
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    fd = walker.open_file(path)
    try:
        yield fd
    finally:
        os.close(fd)


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def _translate_os_errors(given_path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in MACHINE_ERRNOS:
            raise os_error_to_fault(error, format_path(given_path)) from error
        message = ERRNO_MESSAGES.get(error.errno or 0, f"{{}}: {error.strerror}")
        raise ActionError(message.format(format_path(given_path))) from error


def _overwrite(walker: TreeWalker, path: str, content: bytes) -> bool:
    """Write a file in place, if its blocks have the space, it has one name and its mode stays as it is."""
    folder, _, name = path.rpartition("/")
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=walker.open_folder(folder))
    except OSError:  # it does not exist, or the other way of writing says what is wrong
        return False
    try:
        status = os.fstat(fd)
        fits = 0 < len(content) <= min(status.st_blocks * BYTES_PER_BLOCK, MAX_OVERWRITE_BYTES)
        is_plain = stat.S_ISREG(status.st_mode) and not stat.S_IMODE(status.st_mode) & ~PERMISSION_BITS
        if not fits or not is_plain or status.st_nlink != 1:
            return False
        write_all(fd, content)
        if status.st_size > len(content):
            os.ftruncate(fd, len(content))
        return True
    finally:
        os.close(fd)


def _existing_mode(walker: TreeWalker, path: str) -> int | None:
    """Return the mode of the file to replace, if it exists; anything but a regular file is an error."""
    folder, _, name = path.rpartition("/")
    try:
        mode = os.lstat(name, dir_fd=walker.open_folder(folder)).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        number = {stat.S_IFDIR: errno.EISDIR, stat.S_IFLNK: errno.ELOOP}.get(stat.S_IFMT(mode), errno.ENXIO)
        raise OSError(number, os.strerror(number))
    return mode & PERMISSION_BITS


def _list_folder(walker: TreeWalker, folder: str) -> list[FolderEntry]:
    listed = []
    fd = walker.open_folder(folder)
    with os.scandir(fd) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                listed.append(FolderEntry(entry.name, "link", 0, os.readlink(entry.name, dir_fd=fd)))
            elif stat.S_ISDIR(status.st_mode):
                listed.append(FolderEntry(entry.name, "folder", 0))
            else:
                kind: EntryKind = "file" if stat.S_ISREG(status.st_mode) else "other"
                listed.append(FolderEntry(entry.name, kind, status.st_size))
    return sorted(listed)
