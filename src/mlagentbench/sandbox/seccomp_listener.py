"""Receives system calls of other processes from the kernel, to let them continue or to answer them."""

import ctypes
import errno
import os
import struct
from contextlib import suppress
from fcntl import ioctl
from typing import NamedTuple

IOCTL_NOTIF_RECV, IOCTL_NOTIF_SEND, FLAG_CONTINUE = 0xC0502100, 0xC0182101, 1
IOCTL_NOTIF_ID_VALID, IOCTL_NOTIF_ADDFD, FLAG_SETFD = 0x40082102, 0x40182103, 1
NOTIFICATION_STRUCT, RESPONSE_STRUCT = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
ADDFD_STRUCT = struct.Struct("=QIIII")
PAGE_BYTES, MAX_READ_BYTES = 4096, 4096
_EMPTY_NOTIFICATION = bytes(NOTIFICATION_STRUCT.size)


class Notification(NamedTuple):
    """One call that waits to continue."""

    id: int
    tid: int
    number: int
    arguments: tuple[int, ...]


class IoVec(ctypes.Structure):
    """The kernel's struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class SeccompListener:
    """Receives the calls of all processes that have the filter."""

    def __init__(self, listener: int) -> None:
        self.fd = listener
        self._notification = bytearray(NOTIFICATION_STRUCT.size)
        self._process_vm_readv = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._buffer = ctypes.create_string_buffer(MAX_READ_BYTES + 1)
        self._local_iovec = IoVec(ctypes.addressof(self._buffer), MAX_READ_BYTES)
        self._remote_iovecs = (IoVec * 2)()

    def receive(self) -> Notification | None:
        """The call that has waited longest; None if its process was killed meanwhile."""
        self._notification[:] = _EMPTY_NOTIFICATION
        try:
            ioctl(self.fd, IOCTL_NOTIF_RECV, self._notification)
        except OSError:
            return None
        fields = NOTIFICATION_STRUCT.unpack(self._notification)
        return Notification(fields[0], fields[1], fields[3], fields[6:])

    def continue_call(self, notification: Notification) -> None:
        """Let the kernel execute the call as if there were no listener; the sandbox still applies."""
        with suppress(OSError):  # its process was killed meanwhile
            ioctl(self.fd, IOCTL_NOTIF_SEND, RESPONSE_STRUCT.pack(notification.id, 0, 0, FLAG_CONTINUE))

    def answer_call(self, notification: Notification, value: int = 0, error: int = 0) -> None:
        """Let the call return a value or an error; the kernel does not execute it."""
        with suppress(OSError):
            ioctl(self.fd, IOCTL_NOTIF_SEND, RESPONSE_STRUCT.pack(notification.id, value, -error, 0))

    def give_fd(self, notification: Notification, fd: int, flags: int, target: int | None = None) -> int:
        """Duplicate a descriptor into the calling process, as `target` if given; returns its number there."""
        mode = 0 if target is None else FLAG_SETFD
        request = ADDFD_STRUCT.pack(notification.id, mode, fd, target or 0, flags & os.O_CLOEXEC)
        number: int = ioctl(self.fd, IOCTL_NOTIF_ADDFD, bytearray(request))
        return number

    def is_waiting(self, notification: Notification) -> bool:
        """Whether the call still waits: if not, its thread id may belong to another thread by now."""
        with suppress(OSError):
            ioctl(self.fd, IOCTL_NOTIF_ID_VALID, struct.pack("=Q", notification.id))
            return True
        return False

    def read_memory(self, tid: int, address: int, length: int = MAX_READ_BYTES) -> bytes:
        """Read memory of a thread; less than asked for if it is not all mapped.

        Raises:
            PermissionError: This machine does not let us read at all, so accesses cannot be recorded.
        """
        length = min(length, MAX_READ_BYTES)
        # Two parts, split at the page boundary: the second page may not be mapped.
        first = min(PAGE_BYTES - address % PAGE_BYTES, length)
        self._remote_iovecs[0].base, self._remote_iovecs[0].length = address, first
        self._remote_iovecs[1].base, self._remote_iovecs[1].length = address + first, length - first
        count = self._process_vm_readv(tid, ctypes.byref(self._local_iovec), 1, self._remote_iovecs, 2, 0)
        if count < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            raise PermissionError("the memory of sandboxed processes cannot be read on this machine")
        return self._buffer.raw[:count] if count > 0 else b""

    def read_string(self, tid: int, address: int) -> bytes:
        """Read memory up to the first NUL."""
        return self.read_memory(tid, address).partition(b"\0")[0]


def read_link(path: str) -> str:
    """The target of a link in /proc, as the command sees it; "" if it does not exist any more."""
    with suppress(OSError):
        return os.readlink(path)  # noqa: PTH115 - thousands of times
    return ""
