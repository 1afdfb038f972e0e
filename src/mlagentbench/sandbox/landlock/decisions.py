"""Decides the system calls of a command that Landlock does not check, or cannot check finely enough.

Calls whose arguments are numbers are checked and continue. A path could change after the check: the
supervisor makes such a call itself, on folders that it has opened, and answers with the result.
"""

import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mlagentbench.sandbox.landlock.kernel import rename_at
from mlagentbench.sandbox.processes import list_process_tree, read_proc_stat
from mlagentbench.sandbox.seccomp_listener import Notification, SeccompListener

SHARED_MEMORY_PREFIX = "/dev/shm/"
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_EMPTY_PATH = -100, 0x100, 0x200, 0x1000
UTIME_NOW, UTIME_OMIT = 0x3FFFFFFF, 0x3FFFFFFE
MAX_ADDRESS_BYTES = 110
CONTINUE: int | None = None  # the kernel executes the call


class ServerBusy(Exception):
    """A connection cannot be made yet, and the caller waits for it."""


class Decisions:
    """The decisions about one command.

    Args:
        listener: Where the calls are received.
        calls: For each number of a call, the method that decides it and the name of the call.
        writable: Folders whose files the command may change.
        protected: Files and folders in these that it may not change.
        shared_memory: The private folder that stands for /dev/shm.
    """

    def __init__(
        self,
        listener: SeccompListener,
        calls: Mapping[int, tuple[str, str]],
        writable: list[str],
        protected: list[str],
        shared_memory: str,
    ) -> None:
        self._listener, self._calls = listener, calls
        self._writable, self._protected, self._shared_memory = writable, protected, shared_memory
        self.waiting: list[Notification] = []  # connections to a server that is busy

    def receive(self) -> None:
        """Decide the call that has waited longest."""
        if notification := self._listener.receive():
            self._decide(notification)

    def retry_waiting(self) -> None:
        """Decide the calls again that could not be answered yet."""
        waiting, self.waiting = self.waiting, []
        for notification in waiting:
            self._decide(notification)

    def _decide(self, notification: Notification) -> None:
        method, name = self._calls[notification.number]
        try:
            result = getattr(self, f"_{method}")(notification, name)
        except ServerBusy:
            self.waiting.append(notification)
        except OSError as error:
            self._listener.answer_call(notification, error=error.errno or errno.EPERM)
        except Exception:  # noqa: BLE001 - no call may end the supervisor
            self._listener.answer_call(notification, error=errno.EINVAL)
        else:
            if result is CONTINUE:
                self._listener.continue_call(notification)
            else:
                self._listener.answer_call(notification, value=result)

    # Other processes

    def _signal_process(self, call: Notification, name: str) -> int | None:
        pid = _signed(call.arguments[0])
        if name == "kill" and pid == -1:
            return self._signal_all(call, _signed(call.arguments[1]))
        if name == "kill" and pid < -1:
            return self._require_group(-pid)
        return CONTINUE if name == "kill" and pid == 0 else self._require_own(pid)

    def _signal_all(self, call: Notification, signal_number: int) -> int:
        status = read_proc_stat(call.tid)
        for pid in list_process_tree(os.getpid())[1:]:
            if status and pid != _thread_group(call.tid):
                os.kill(pid, signal_number) if signal_number else None
        return 0

    def _change_process(self, call: Notification, _name: str) -> int | None:
        return self._require_own(_signed(call.arguments[0]))

    def _change_priority(self, call: Notification, name: str) -> int | None:
        kind, target = _signed(call.arguments[0]) - (name == "ioprio_set"), _signed(call.arguments[1])
        if kind not in (0, 1):
            raise PermissionError(errno.EPERM, "all processes of a user")
        if target == 0:
            return CONTINUE
        return self._require_group(target) if kind else self._require_own(target)

    def _require_own(self, pid: int) -> int | None:
        """Continue if a process or thread belongs to the command; to it, no other process exists."""
        own = os.getpid()
        while pid > 1 and pid != own:
            fields = read_proc_stat(pid)
            pid = int(fields[1]) if fields else 0
            if pid == own:
                return CONTINUE
        raise ProcessLookupError(errno.ESRCH, "no such process")

    def _require_group(self, group: int) -> int | None:
        for pid in list_process_tree(os.getpid())[1:]:
            if (fields := read_proc_stat(pid)) and int(fields[2]) == group:
                return CONTINUE
        raise ProcessLookupError(errno.ESRCH, "no such process group")

    # Files

    def _change_mode(self, call: Notification, name: str) -> int:
        arguments = call.arguments
        if name == "fchmod":
            path, mode = f"/proc/{call.tid}/fd/{_signed(arguments[0])}", arguments[1]
        elif name == "chmod":
            path, mode = self._path(call, AT_FDCWD, arguments[0]), arguments[1]
        else:
            flags = arguments[3] if name == "fchmodat2" else 0
            path, mode = self._path(call, arguments[0], arguments[1], flags), arguments[2]
        with self._open_changeable(call, path) as fd:
            os.chmod(f"/proc/self/fd/{fd}", mode & 0o7777)  # noqa: PTH101
        return 0

    def _change_times(self, call: Notification, _name: str) -> int:
        folder, address, times_address, flags = call.arguments[:4]
        if not address:
            path = f"/proc/{call.tid}/fd/{_signed(folder)}"
        else:
            path = self._path(call, folder, address, flags)
        times = (0, UTIME_NOW, 0, UTIME_NOW)
        if times_address:
            times = struct.unpack("=4q", self._listener.read_memory(call.tid, times_address, 32))
        if address and flags & AT_SYMLINK_NOFOLLOW:
            with self._open_parent(call, path) as (parent, name):
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                os.utime(name, ns=_nanoseconds(times, status), dir_fd=parent, follow_symlinks=False)
            return 0
        with self._open_changeable(call, path) as fd:
            os.utime(f"/proc/self/fd/{fd}", ns=_nanoseconds(times, os.fstat(fd)))
        return 0

    def _remove(self, call: Notification, name: str) -> int:
        folder, address, flags = (
            (AT_FDCWD, call.arguments[0], 0) if name != "unlinkat" else call.arguments[:3]
        )
        path = self._path(call, folder, address)
        if path.startswith(SHARED_MEMORY_PREFIX):
            os.unlink(self._shared_memory_path(path))  # noqa: PTH108
            return 0
        with self._open_parent(call, path) as (parent, last):
            remove = os.rmdir if name == "rmdir" or flags & AT_REMOVEDIR else os.unlink
            remove(last, dir_fd=parent)
        return 0

    def _rename(self, call: Notification, name: str) -> int:
        old, new, flags = self._two_paths(call, name == "rename")
        with (
            self._open_parent(call, old) as (old_parent, old_name),
            self._open_parent(call, new) as (new_parent, new_name),
        ):
            rename_at(old_parent, old_name, new_parent, new_name, flags if name == "renameat2" else 0)
        return 0

    def _link(self, call: Notification, name: str) -> int:
        old, new, flags = self._two_paths(call, name == "link")
        if old.startswith(SHARED_MEMORY_PREFIX) and new.startswith(SHARED_MEMORY_PREFIX):
            os.link(self._shared_memory_path(old), self._shared_memory_path(new))
            return 0
        if name == "linkat" and flags:
            raise PermissionError(errno.EPERM, "links to open files")
        with (
            self._open_parent(call, old) as (old_parent, old_name),
            self._open_parent(call, new) as (new_parent, new_name),
        ):
            os.link(old_name, new_name, src_dir_fd=old_parent, dst_dir_fd=new_parent, follow_symlinks=False)
        return 0

    def _open_shared_memory(self, call: Notification, name: str) -> int | None:
        arguments = call.arguments if name == "openat" else (0, *call.arguments)
        path = os.fsdecode(self._listener.read_string(call.tid, arguments[1]))
        if not path.startswith(SHARED_MEMORY_PREFIX):
            return CONTINUE
        flags, mode = arguments[2] & 0xFFFFFFFF, arguments[3] & 0o777 & ~_umask(call.tid)
        target = self._shared_memory_path(path)
        fd = os.open(target, flags & ~os.O_TMPFILE | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            return self._listener.give_fd(call, fd, flags)
        finally:
            os.close(fd)

    def _shared_memory_path(self, path: str) -> str:
        name = path.removeprefix(SHARED_MEMORY_PREFIX)
        if "/" in name or name in ("", ".", ".."):
            raise PermissionError(errno.EACCES, "a folder in /dev/shm")
        return f"{self._shared_memory}/{name}"

    def _connect(self, call: Notification, _name: str) -> int:
        """Connect to a socket in a folder of the command, and give it that connection."""
        fd, address, length = call.arguments[:3]
        data = self._listener.read_memory(call.tid, address, min(length & 0xFFFFFFFF, MAX_ADDRESS_BYTES))
        family, path = int.from_bytes(data[:2], sys.byteorder), data[2:].partition(b"\0")[0]
        if family != socket.AF_UNIX or not path:
            raise PermissionError(errno.EACCES, "only sockets in the folders of the command")
        flags = _descriptor_flags(call.tid, _signed(fd))
        with (
            self._open_changeable(call, self._absolute(call, AT_FDCWD, os.fsdecode(path))) as target,
            socket.socket(socket.AF_UNIX) as connection,
        ):
            connection.setblocking(False)
            try:
                connection.connect(f"/proc/self/fd/{target}")
            except BlockingIOError as error:
                if flags & os.O_NONBLOCK:
                    raise
                raise ServerBusy from error
            connection.setblocking(not flags & os.O_NONBLOCK)
            self._listener.give_fd(call, connection.fileno(), flags, _signed(fd))
        return 0

    # Paths

    def _two_paths(self, call: Notification, is_short: bool) -> tuple[str, str, int]:
        arguments = call.arguments
        if is_short:
            arguments = (AT_FDCWD, arguments[0], AT_FDCWD, arguments[1], 0)
        old, new = self._path(call, *arguments[:2]), self._path(call, *arguments[2:4])
        return old, new, arguments[4] & 0xFFFFFFFF

    def _path(self, call: Notification, folder: int, address: int, flags: int = 0) -> str:
        """A path as we can open it, from the memory of the caller."""
        path = os.fsdecode(self._listener.read_string(call.tid, address))
        if not path and not flags & AT_EMPTY_PATH:
            raise FileNotFoundError(errno.ENOENT, "empty path")
        return self._absolute(call, folder, path)

    def _absolute(self, call: Notification, folder: int, path: str) -> str:
        for own in ("/proc/self/", "/proc/thread-self/"):
            if path.startswith(own):
                return f"/proc/{call.tid}/{path.removeprefix(own)}"
        if path.startswith("/"):
            return path
        base = "cwd" if _signed(folder) == AT_FDCWD else f"fd/{_signed(folder)}"
        return f"/proc/{call.tid}/{base}/{path}" if path else f"/proc/{call.tid}/{base}"

    @contextmanager
    def _open_changeable(self, call: Notification, path: str) -> Iterator[int]:
        """Open a file that the command may change, without reading or writing it."""
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            self._require_waiting(call)
            self._require_changeable(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _open_parent(self, call: Notification, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder of a file that the command may remove; returns it with the name of the file."""
        folder, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            raise OSError(errno.EBUSY, "not a name")
        fd = os.open(folder or "/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._require_waiting(call)
            real = f"{os.readlink(f'/proc/self/fd/{fd}').rstrip('/')}/{name}"  # noqa: PTH115
            self._require_changeable(real)
            if real in self._writable or any(path.startswith(f"{real}/") for path in self._protected):
                raise PermissionError(errno.EPERM, "a folder with protected files")
            yield fd, name
        finally:
            os.close(fd)

    def _require_waiting(self, call: Notification) -> None:
        if not self._listener.is_waiting(call):  # what was opened may belong to another process
            raise ProcessLookupError(errno.ESRCH, "the caller was killed")

    def _require_changeable(self, real: str) -> None:
        is_inside = any(real == folder or real.startswith(f"{folder}/") for folder in self._writable)
        if not is_inside or any(real == path or real.startswith(f"{path}/") for path in self._protected):
            raise PermissionError(errno.EPERM, "not a file of the command")


def _signed(value: int) -> int:
    """A 32-bit argument as the kernel reads it."""
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def _thread_group(tid: int) -> int:
    return _read_status(tid, "Tgid:", 10)


def _umask(tid: int) -> int:
    return _read_status(tid, "Umask:", 8)


def _read_status(tid: int, name: str, base: int) -> int:
    with open(f"/proc/{tid}/status") as file:  # noqa: PTH123
        return next(int(line.split()[1], base) for line in file if line.startswith(name))


def _descriptor_flags(tid: int, fd: int) -> int:
    with open(f"/proc/{tid}/fdinfo/{fd}") as file:  # noqa: PTH123
        return next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))


def _nanoseconds(times: tuple[int, ...], status: os.stat_result) -> tuple[int, int]:
    """The times to set, given the present ones."""
    values = []
    for seconds, nanoseconds, now in ((*times[:2], status.st_atime_ns), (*times[2:], status.st_mtime_ns)):
        if nanoseconds == UTIME_OMIT:
            values.append(now)
        elif nanoseconds == UTIME_NOW:
            values.append(time.time_ns())
        else:
            values.append(seconds * 10**9 + nanoseconds)
    return values[0], values[1]
