"""What a system call wants, read from the memory of the process that makes it."""

import os
import socket
import struct
import sys
from typing import NamedTuple

from mlagentbench.sandbox.access_log.lookup import absolute_path
from mlagentbench.sandbox.access_log.seccomp_listener import Notification, SeccompListener

WRITE_FLAGS = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC
SOCKET_CALL_MODES = {
    "connect": "connect",
    "bind": "bind",
    "sendto": "send",
    "sendmsg": "send",
    "sendmmsg": "send",
}
_MAX_ADDRESS_BYTES = 128  # bytes, the most that the kernel takes


class AccessRequest(NamedTuple):
    """A file by its path or a socket by its address, what for, and whether it may be made."""

    path: str
    mode: str
    creates: bool = False


def parse_request(ear: SeccompListener, notice: Notification, name: str) -> AccessRequest | None:
    """What the call wants; a message to wherever its socket is connected wants nothing new."""
    return (
        _parse_socket_call(ear, notice, name)
        if name in SOCKET_CALL_MODES
        else _parse_file_call(ear, notice, name)
    )


def _parse_file_call(ear: SeccompListener, notice: Notification, name: str) -> AccessRequest:
    arguments, folder = notice.arguments, None
    if name in ("openat", "openat2", "execveat"):
        folder = arguments[0] & 0xFFFFFFFF
        folder = folder if folder < 1 << 31 else None  # AT_FDCWD is negative
        arguments = arguments[1:]
    path = absolute_path(notice.tid, folder, _decode(ear.read_string(notice.tid, arguments[0])))
    if name in ("execve", "execveat"):
        return AccessRequest(path, "execute")
    if name in ("creat", "truncate"):
        return AccessRequest(path, "write", name == "creat")
    flags = arguments[1]
    if name == "openat2":
        flags = int.from_bytes(ear.read_memory(notice.tid, flags, 8), sys.byteorder)
    return AccessRequest(path, "write" if flags & WRITE_FLAGS else "read", bool(flags & os.O_CREAT))


def _parse_socket_call(ear: SeccompListener, notice: Notification, name: str) -> AccessRequest | None:
    where, length = notice.arguments[1:3]
    if name == "sendto":
        where, length = notice.arguments[4:6]
    elif name != SOCKET_CALL_MODES[name]:  # the address stands in a header; of many messages, the first tells
        where, length = struct.unpack("=QI", ear.read_memory(notice.tid, where, 12).ljust(12, b"\0"))
        if not where:
            return None
    told = ear.read_memory(notice.tid, where, min(length & 0xFFFFFFFF, _MAX_ADDRESS_BYTES))
    family = int.from_bytes(told[:2], sys.byteorder)
    if family == socket.AF_UNIX and told[2:3] not in (b"", b"\0"):
        path = absolute_path(notice.tid, None, _decode(told[2:].partition(b"\0")[0]))
        return AccessRequest(f"unix:{path}", SOCKET_CALL_MODES[name], name == "bind")
    return AccessRequest(format_address(family, told), SOCKET_CALL_MODES[name])


def format_address(family: int, told: bytes) -> str:
    """An address in words, but for sockets that lie in a folder."""
    if family == socket.AF_UNIX:
        return f"unix:@{_decode(told[3:])}"
    if family == socket.AF_NETLINK:
        return "netlink"
    port = int.from_bytes(told[2:4])
    if family == socket.AF_INET and len(told) >= 8:
        return f"inet:{socket.inet_ntop(family, told[4:8])}:{port}"
    if family == socket.AF_INET6 and len(told) >= 24:
        return f"inet:[{socket.inet_ntop(family, told[8:24])}]:{port}"
    return f"family {family}:"


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
