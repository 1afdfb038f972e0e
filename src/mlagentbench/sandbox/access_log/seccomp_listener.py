"""What the kernel tells of another process's system calls: hear one, read its arguments, let it go on."""

import ctypes
import errno
import os
import struct
from contextlib import suppress
from fcntl import ioctl
from typing import NamedTuple

IOCTL_NOTIF_RECV, IOCTL_NOTIF_SEND, FLAG_CONTINUE = 0xC0502100, 0xC0182101, 1
NOTIFICATION_STRUCT, RESPONSE_STRUCT = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
PAGE_BYTES, MAX_READ_BYTES = 4096, 4096
_EMPTY_NOTIFICATION = bytes(NOTIFICATION_STRUCT.size)


class Notification(NamedTuple):
    """One call that waits to go on."""

    id: int
    tid: int
    number: int
    arguments: tuple[int, ...]


class IoVec(ctypes.Structure):
    """A piece of memory, as the kernel takes it."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class SeccompListener:
    """Hears the calls of a filtered tree of processes."""

    def __init__(self, listener: int) -> None:
        self.fd = listener
        self._notification = bytearray(NOTIFICATION_STRUCT.size)
        self._process_vm_readv = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._buffer = ctypes.create_string_buffer(MAX_READ_BYTES + 1)
        self._local_iovec = IoVec(ctypes.addressof(self._buffer), MAX_READ_BYTES)
        self._remote_iovecs = (IoVec * 2)()

    def receive(self) -> Notification | None:
        """The call that waits longest; None if it was killed meanwhile."""
        self._notification[:] = _EMPTY_NOTIFICATION
        try:
            ioctl(self.fd, IOCTL_NOTIF_RECV, self._notification)
        except OSError:
            return None
        fields = NOTIFICATION_STRUCT.unpack(self._notification)
        return Notification(fields[0], fields[1], fields[3], fields[6:])

    def continue_call(self, notice: Notification) -> None:
        """The kernel does what was asked, as if nobody had listened; every rule of the sandbox still holds."""
        with suppress(OSError):  # killed meanwhile
            ioctl(self.fd, IOCTL_NOTIF_SEND, RESPONSE_STRUCT.pack(notice.id, 0, 0, FLAG_CONTINUE))

    def read_memory(self, thread: int, address: int, length: int = MAX_READ_BYTES) -> bytes:
        """What stands there, as far as there is anything; a machine that lets us read nothing cannot have a ledger."""
        length = min(length, MAX_READ_BYTES)
        first = min(PAGE_BYTES - address % PAGE_BYTES, length)
        self._remote_iovecs[0].base, self._remote_iovecs[0].length = address, first
        self._remote_iovecs[1].base, self._remote_iovecs[1].length = address + first, length - first
        count = self._process_vm_readv(thread, ctypes.byref(self._local_iovec), 1, self._remote_iovecs, 2, 0)
        if count < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            raise PermissionError("the memory of sandboxed processes cannot be read on this machine")
        return self._buffer.raw[:count] if count > 0 else b""

    def read_string(self, thread: int, address: int) -> bytes:
        """The same up to the first NUL."""
        return self.read_memory(thread, address).partition(b"\0")[0]


def read_link(path: str) -> str:
    """Where a link of /proc leads, as the command sees it; nowhere if it has gone."""
    with suppress(OSError):
        return os.readlink(path)  # noqa: PTH115 - thousands of times
    return ""
