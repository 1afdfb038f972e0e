"""What the kernel tells of another process's system calls: hear one, read its arguments, let it go on."""

import ctypes
import errno
import os
import struct
from contextlib import suppress
from fcntl import ioctl
from typing import NamedTuple

RECEIVE, SEND, GO_ON = 0xC0502100, 0xC0182101, 1
HEARD, ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
PAGE, LONGEST = 4096, 4096
_NOTHING = bytes(HEARD.size)


class Notice(NamedTuple):
    """One call that waits to go on."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]


class Part(ctypes.Structure):
    """A piece of memory, as the kernel takes it."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Ear:
    """Hears the calls of a filtered tree of processes."""

    def __init__(self, listener: int) -> None:
        self.fd = listener
        self._heard = bytearray(HEARD.size)
        self._read = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._bytes = ctypes.create_string_buffer(LONGEST + 1)
        self._here = Part(ctypes.addressof(self._bytes), LONGEST)
        self._there = (Part * 2)()

    def hear(self) -> Notice | None:
        """The call that waits longest; None if it was killed meanwhile."""
        self._heard[:] = _NOTHING
        try:
            ioctl(self.fd, RECEIVE, self._heard)
        except OSError:
            return None
        fields = HEARD.unpack(self._heard)
        return Notice(fields[0], fields[1], fields[3], fields[6:])

    def go_on(self, notice: Notice) -> None:
        """The kernel does what was asked, as if nobody had listened; every rule of the sandbox still holds."""
        with suppress(OSError):  # killed meanwhile
            ioctl(self.fd, SEND, ANSWER.pack(notice.id, 0, 0, GO_ON))

    def memory(self, thread: int, address: int, length: int = LONGEST) -> bytes:
        """What stands there, as far as there is anything; a machine that lets us read nothing cannot have a ledger."""
        length = min(length, LONGEST)
        first = min(PAGE - address % PAGE, length)
        self._there[0].base, self._there[0].length = address, first
        self._there[1].base, self._there[1].length = address + first, length - first
        count = self._read(thread, ctypes.byref(self._here), 1, self._there, 2, 0)
        if count < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            raise PermissionError("the memory of sandboxed processes cannot be read on this machine")
        return self._bytes.raw[:count] if count > 0 else b""

    def text(self, thread: int, address: int) -> bytes:
        """The same up to the first NUL."""
        return self.memory(thread, address).partition(b"\0")[0]


def link(path: str) -> str:
    """Where a link of /proc leads, as the command sees it; nowhere if it has gone."""
    with suppress(OSError):
        return os.readlink(path)  # noqa: PTH115 - thousands of times
    return ""
