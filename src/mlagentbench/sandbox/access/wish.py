"""What a system call wants, read from the memory of the process that makes it."""

import os
import socket
import struct
import sys
from typing import NamedTuple

from mlagentbench.sandbox.access.ear import Ear, Notice
from mlagentbench.sandbox.access.lookup import absolute

CHANGES = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC
SOCKETS = {"connect": "connect", "bind": "bind", "sendto": "send", "sendmsg": "send", "sendmmsg": "send"}
_ADDRESS = 128  # bytes, the most that the kernel takes


class Wish(NamedTuple):
    """A file by its path or a socket by its address, what for, and whether it may be made."""

    path: str
    mode: str
    creates: bool = False


def wish(ear: Ear, notice: Notice, name: str) -> Wish | None:
    """What the call wants; a message to wherever its socket is connected wants nothing new."""
    return _socket(ear, notice, name) if name in SOCKETS else _file(ear, notice, name)


def _file(ear: Ear, notice: Notice, name: str) -> Wish:
    arguments, folder = notice.arguments, None
    if name in ("openat", "openat2", "execveat"):
        folder = arguments[0] & 0xFFFFFFFF
        folder = folder if folder < 1 << 31 else None  # AT_FDCWD is negative
        arguments = arguments[1:]
    path = absolute(notice.thread, folder, _text(ear.text(notice.thread, arguments[0])))
    if name in ("execve", "execveat"):
        return Wish(path, "execute")
    if name in ("creat", "truncate"):
        return Wish(path, "write", name == "creat")
    flags = arguments[1]
    if name == "openat2":
        flags = int.from_bytes(ear.memory(notice.thread, flags, 8), sys.byteorder)
    return Wish(path, "write" if flags & CHANGES else "read", bool(flags & os.O_CREAT))


def _socket(ear: Ear, notice: Notice, name: str) -> Wish | None:
    where, length = notice.arguments[1:3]
    if name == "sendto":
        where, length = notice.arguments[4:6]
    elif name != SOCKETS[name]:  # the address stands in a header; of many messages, the first tells
        where, length = struct.unpack("=QI", ear.memory(notice.thread, where, 12).ljust(12, b"\0"))
        if not where:
            return None
    told = ear.memory(notice.thread, where, min(length & 0xFFFFFFFF, _ADDRESS))
    family = int.from_bytes(told[:2], sys.byteorder)
    if family == socket.AF_UNIX and told[2:3] not in (b"", b"\0"):
        path = absolute(notice.thread, None, _text(told[2:].partition(b"\0")[0]))
        return Wish(f"unix:{path}", SOCKETS[name], name == "bind")
    return Wish(address(family, told), SOCKETS[name])


def address(family: int, told: bytes) -> str:
    """An address in words, but for sockets that lie in a folder."""
    if family == socket.AF_UNIX:
        return f"unix:@{_text(told[3:])}"
    if family == socket.AF_NETLINK:
        return "netlink"
    port = int.from_bytes(told[2:4])
    if family == socket.AF_INET and len(told) >= 8:
        return f"inet:{socket.inet_ntop(family, told[4:8])}:{port}"
    if family == socket.AF_INET6 and len(told) >= 24:
        return f"inet:[{socket.inet_ntop(family, told[8:24])}]:{port}"
    return f"family {family}:"


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
