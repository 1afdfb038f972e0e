"""Opens folders and files one path component at a time, so that no link is ever followed."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from mlagentbench.errors import Fault

CHUNK_BYTES = 1 << 20
PERMISSION_BITS = 0o777  # without set-uid: a harness that runs as root must not restore such a file
OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeWalker:
    """Opens files and folders below a root folder. The last folder stays open for its other files.

    Folders that lack the bits of `required_mode` get them until the walker is closed, and unreadable files
    are made readable while they are opened: an agent can lock its own files, but not hide them from the
    harness.
    """

    def __init__(self, root: Path, required_mode: int = 0) -> None:
        self.root = root
        self.required_mode = 0 if os.geteuid() == 0 else required_mode
        self.relaxed_modes: dict[str, int] = {}
        self._last_path = ""
        self._fd = self._root_fd = self._open_root()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.restore_modes()
        finally:
            self._close_last_folder()
            os.close(self._root_fd)

    def _close_last_folder(self) -> None:
        if self._fd != self._root_fd:
            os.close(self._fd)
        self._last_path, self._fd = "", self._root_fd

    def _open_root(self) -> int:
        try:
            if self.required_mode:
                mode = stat.S_IMODE(self.root.lstat().st_mode)
                if mode & self.required_mode != self.required_mode:
                    self.root.chmod(mode | 0o700)
                    self.relaxed_modes[""] = mode
            return os.open(self.root, OPEN_FOLDER_FLAGS)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Fault(f"folder {self.root} is missing") from error

    def open_folder(self, path: str, create: bool = False, owner: int | None = None) -> int:
        """Return a descriptor of the folder at `path`, which is valid until the next call."""
        if path == self._last_path:
            return self._fd
        if not self._last_path or not path.startswith(f"{self._last_path}/"):
            self._close_last_folder()
        opened = self._last_path
        for part in path[len(opened) :].lstrip("/").split("/") if path else ():
            opened = f"{opened}/{part}" if opened else part
            fd = self._open_subfolder(part, self._fd, opened, create, owner)
            self._close_last_folder()
            self._last_path, self._fd = opened, fd
        return self._fd

    def _open_subfolder(self, name: str, parent_fd: int, path: str, create: bool, owner: int | None) -> int:
        if self.required_mode:
            mode = stat.S_IMODE(os.lstat(name, dir_fd=parent_fd).st_mode)
            if mode & self.required_mode != self.required_mode:
                set_mode(name, parent_fd, mode | 0o700)
                self.relaxed_modes.setdefault(path, mode)
        try:
            return os.open(name, OPEN_FOLDER_FLAGS, dir_fd=parent_fd)
        except FileNotFoundError:
            if not create:
                raise
            return create_folder(name, parent_fd, owner)
        except NotADirectoryError as error:
            if stat.S_ISLNK(os.lstat(name, dir_fd=parent_fd).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from error
            raise

    def open_file(self, path: str) -> int:
        """Open the file at `path` for reading; a link, a folder or a pipe is an error."""
        folder, _, name = path.rpartition("/")
        parent_fd = self.open_folder(folder)
        try:
            fd = os.open(name, OPEN_READ_FLAGS, dir_fd=parent_fd)
        except PermissionError:
            if not self.required_mode:
                raise
            mode = stat.S_IMODE(os.lstat(name, dir_fd=parent_fd).st_mode)
            set_mode(name, parent_fd, mode | 0o400)
            try:
                fd = os.open(name, OPEN_READ_FLAGS, dir_fd=parent_fd)
            finally:
                set_mode(name, parent_fd, mode)
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
            raise OSError(number, os.strerror(number), path)
        return fd

    def restore_modes(self) -> None:
        """Give folders whose modes were relaxed their modes back, the innermost first."""
        for path, mode in reversed(self.relaxed_modes.items()):
            folder, _, name = path.rpartition("/")
            with suppress(FileNotFoundError):
                if path:
                    set_mode(name, self.open_folder(folder), mode)
                else:
                    os.fchmod(self._root_fd, mode)
        self.relaxed_modes.clear()


def create_folder(name: str, parent_fd: int, owner: int | None) -> int:
    """Create a folder and return its descriptor; the mode does not depend on the umask."""
    os.mkdir(name, 0o700, dir_fd=parent_fd)
    fd = os.open(name, OPEN_FOLDER_FLAGS, dir_fd=parent_fd)
    set_owner_and_mode(fd, owner, 0o755)
    return fd


def set_owner_and_mode(fd: int, owner: int | None, mode: int) -> None:
    """Set the owner and the mode of an open file or folder."""
    if owner is not None:
        os.fchown(fd, owner, owner)
    os.fchmod(fd, mode & PERMISSION_BITS)


def set_mode(name: str, parent_fd: int, mode: int) -> None:
    """Change the mode without following a link; Linux offers this only through /proc."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    try:
        if not stat.S_ISLNK(os.fstat(fd).st_mode):
            Path(f"/proc/self/fd/{fd}").chmod(mode)
    finally:
        os.close(fd)


def read_chunks(fd: int, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of an open file in chunks."""
    while size > 0 and (chunk := os.read(fd, min(size, CHUNK_BYTES))):
        size -= len(chunk)
        yield chunk


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, in as many calls as the kernel needs."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def remove_tree(name: str, parent_fd: int) -> None:
    """Remove a file, a link or a whole tree.

    Subfolders are first moved next to the outermost folder, so that no tree is too deep to remove.
    """
    if not stat.S_ISDIR(os.lstat(name, dir_fd=parent_fd).st_mode):
        os.unlink(name, dir_fd=parent_fd)
        return
    pending = [name]
    while pending:
        top = pending.pop()
        set_mode(top, parent_fd, 0o700)
        fd = os.open(top, OPEN_FOLDER_FLAGS, dir_fd=parent_fd)
        try:
            with os.scandir(fd) as entries:
                children = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for child, is_folder in children:
                if is_folder:
                    set_mode(child, fd, 0o700)  # moving a folder writes to it
                    pending.append(f".removed-{secrets.token_hex(8)}")
                    os.rename(child, pending[-1], src_dir_fd=fd, dst_dir_fd=parent_fd)
                else:
                    os.unlink(child, dir_fd=fd)
        finally:
            os.close(fd)
        os.rmdir(top, dir_fd=parent_fd)


def os_error_to_fault(error: OSError, subject: str) -> Fault:
    """Describe an error of the machine in one line."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Fault(f"disk full: {subject}" if is_full else f"{subject}: {error.strerror or error}")


@contextmanager
def os_errors_as_faults(subject: str) -> Iterator[None]:
    """Turn an OSError in the body into a Fault that names `subject`."""
    try:
        yield
    except OSError as error:
        raise os_error_to_fault(error, subject) from error
