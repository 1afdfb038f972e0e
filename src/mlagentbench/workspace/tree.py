"""Folders and files opened one step at a time, so that no link is ever followed."""

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
PERMISSION_BITS = 0o777  # bits kept of a mode: a set-uid file written again by a root harness would be a gift
OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeWalker:
    """Opens what lies below a root folder; keeps the last folder open, since neighbours come together.

    With `needs`, folders that lack those owner bits have them until the end, and files that cannot be read
    are readable for a moment: an agent can lock its own files, but not hide them from us.
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
        if not self.root.is_dir():
            raise Fault(f"the folder {self.root} is missing")
        mode = self.root.lstat().st_mode
        if mode & self.required_mode != self.required_mode:
            self.root.chmod(stat.S_IMODE(mode) | 0o700)
            self.relaxed_modes[""] = stat.S_IMODE(mode)
        return os.open(self.root, OPEN_FOLDER_FLAGS)

    def open_folder(self, path: str, create: bool = False, owner: int | None = None) -> int:
        """The open folder at `path`, good until the next one is asked for."""
        if path == self._last_path:
            return self._fd
        self._close_last_folder()
        fd, done = self._root_fd, ""
        try:
            for part in path.split("/") if path else ():
                done = f"{done}/{part}" if done else part
                inner = self._open_subfolder(part, fd, done, create, owner)
                if fd != self._root_fd:
                    os.close(fd)
                fd = inner
        except BaseException:
            if fd != self._root_fd:
                os.close(fd)
            raise
        self._last_path, self._fd = path, fd
        return fd

    def _open_subfolder(self, name: str, above: int, path: str, create: bool, owner: int | None) -> int:
        if self.required_mode:
            mode = stat.S_IMODE(os.lstat(name, dir_fd=above).st_mode)
            if mode & self.required_mode != self.required_mode:
                set_mode(name, above, mode | 0o700)
                self.relaxed_modes.setdefault(path, mode)
        try:
            return os.open(name, OPEN_FOLDER_FLAGS, dir_fd=above)
        except FileNotFoundError:
            if not create:
                raise
            return create_folder(name, above, owner)
        except NotADirectoryError as error:
            if stat.S_ISLNK(os.lstat(name, dir_fd=above).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from error
            raise

    def open_file(self, path: str) -> int:
        """The file at `path`, open for reading; a link, a folder or a pipe is an error."""
        folder, _, name = path.rpartition("/")
        above = self.open_folder(folder)
        try:
            fd = os.open(name, OPEN_READ_FLAGS, dir_fd=above)
        except PermissionError:
            if not self.required_mode:
                raise
            mode = stat.S_IMODE(os.lstat(name, dir_fd=above).st_mode)
            set_mode(name, above, mode | 0o400)
            try:
                fd = os.open(name, OPEN_READ_FLAGS, dir_fd=above)
            finally:
                set_mode(name, above, mode)
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
            raise OSError(number, os.strerror(number), path)
        return fd

    def restore_modes(self) -> None:
        """Gives folders that were opened by force their modes back, the innermost first."""
        for path, mode in reversed(self.relaxed_modes.items()):
            folder, _, name = path.rpartition("/")
            with suppress(FileNotFoundError):
                if path:
                    set_mode(name, self.open_folder(folder), mode)
                else:
                    os.fchmod(self._root_fd, mode)
        self.relaxed_modes.clear()


def create_folder(name: str, above: int, owner: int | None) -> int:
    """A new folder, open; its mode does not depend on the umask."""
    os.mkdir(name, 0o700, dir_fd=above)
    fd = os.open(name, OPEN_FOLDER_FLAGS, dir_fd=above)
    set_owner_and_mode(fd, owner, 0o755)
    return fd


def set_owner_and_mode(fd: int, owner: int | None, mode: int) -> None:
    """Gives an open file or folder its owner and its mode."""
    if owner is not None:
        os.fchown(fd, owner, owner)
    os.fchmod(fd, mode & PERMISSION_BITS)


def set_mode(name: str, above: int, mode: int) -> None:
    """chmod that does not follow a link, which Linux offers only by way of /proc."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        if not stat.S_ISLNK(os.fstat(fd).st_mode):
            Path(f"/proc/self/fd/{fd}").chmod(mode)
    finally:
        os.close(fd)


def read_chunks(fd: int, size: int) -> Iterator[bytes]:
    """The first `size` bytes of an open file, piece by piece."""
    while size > 0 and (chunk := os.read(fd, min(size, CHUNK_BYTES))):
        size -= len(chunk)
        yield chunk


def write_all(fd: int, data: bytes) -> None:
    """Writes all of `data`, however many calls the kernel makes of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def remove_tree(name: str, above: int) -> None:
    """Removes a file, a link or a whole tree.

    Inner folders are first moved up beside the outermost, so that no tree is too deep.
    """
    if not stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode):
        os.unlink(name, dir_fd=above)
        return
    pending = [name]
    while pending:
        top = pending.pop()
        set_mode(top, above, 0o700)
        fd = os.open(top, OPEN_FOLDER_FLAGS, dir_fd=above)
        try:
            with os.scandir(fd) as entries:
                inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for inner, is_folder in inside:
                if is_folder:
                    set_mode(inner, fd, 0o700)  # moving a folder writes to it
                    pending.append(f".removed-{secrets.token_hex(8)}")
                    os.rename(inner, pending[-1], src_dir_fd=fd, dst_dir_fd=above)
                else:
                    os.unlink(inner, dir_fd=fd)
        finally:
            os.close(fd)
        os.rmdir(top, dir_fd=above)


def os_error_to_fault(error: OSError, what: str) -> Fault:
    """An error of the machine, said in one line."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Fault(f"disk full: {what}" if full else f"{what}: {error.strerror or error}")


@contextmanager
def os_errors_as_faults(what: str) -> Iterator[None]:
    """Whatever the machine refuses inside is a fault."""
    try:
        yield
    except OSError as error:
        raise os_error_to_fault(error, what) from error
