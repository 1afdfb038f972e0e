"""Parses a system call into the access that it requests; paths are read from the memory of the caller."""

import os
import socket
import struct
import sys
from typing import NamedTuple

from mlagentbench.sandbox.access_log.lookup import absolute_path
from mlagentbench.sandbox.seccomp_listener import Notification, SeccompListener

WRITE_FLAGS = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC
SOCKET_CALL_MODES = {
    "connect": "connect",
    "bind": "bind",
    "sendto": "send",
    "sendmsg": "send",
    "sendmmsg": "send",
}
_MAX_ADDRESS_BYTES = 128  # the kernel's own limit


class AccessRequest(NamedTuple):
    """The path of a file or the address of a socket, the mode of access, and whether it may be created."""

    path: str
    mode: str
    creates: bool = False


def parse_request(listener: SeccompListener, notification: Notification, name: str) -> AccessRequest | None:
    """What a call requests; None for a message to the address that its socket is connected to."""
    if name in SOCKET_CALL_MODES:
        return _parse_socket_call(listener, notification, name)
    return _parse_file_call(listener, notification, name)


def _parse_file_call(listener: SeccompListener, notification: Notification, name: str) -> AccessRequest:
    tid, arguments, folder_fd = notification.tid, notification.arguments, None
    if name in ("openat", "openat2", "execveat"):
        folder_fd = arguments[0] & 0xFFFFFFFF
        folder_fd = folder_fd if folder_fd < 1 << 31 else None  # AT_FDCWD is negative
        arguments = arguments[1:]
    path = absolute_path(tid, folder_fd, _decode(listener.read_string(tid, arguments[0])))
    if name in ("execve", "execveat"):
        return AccessRequest(path, "execute")
    if name in ("creat", "truncate"):
        return AccessRequest(path, "write", name == "creat")
    flags = arguments[1]
    if name == "openat2":
        flags = int.from_bytes(listener.read_memory(tid, flags, 8), sys.byteorder)
    return AccessRequest(path, "write" if flags & WRITE_FLAGS else "read", bool(flags & os.O_CREAT))


def _parse_socket_call(
    listener: SeccompListener, notification: Notification, name: str
) -> AccessRequest | None:
    tid = notification.tid
    pointer, length = notification.arguments[1:3]
    if name == "sendto":
        pointer, length = notification.arguments[4:6]
    elif name != SOCKET_CALL_MODES[name]:
        # sendmsg, sendmmsg: the address is in the header of the first message.
        pointer, length = struct.unpack("=QI", listener.read_memory(tid, pointer, 12).ljust(12, b"\0"))
        if not pointer:
            return None
    address = listener.read_memory(tid, pointer, min(length & 0xFFFFFFFF, _MAX_ADDRESS_BYTES))
    family = int.from_bytes(address[:2], sys.byteorder)
    if family == socket.AF_UNIX and address[2:3] not in (b"", b"\0"):
        path = absolute_path(tid, None, _decode(address[2:].partition(b"\0")[0]))
        return AccessRequest(f"unix:{path}", SOCKET_CALL_MODES[name], name == "bind")
    return AccessRequest(format_address(family, address), SOCKET_CALL_MODES[name])


def format_address(family: int, address: bytes) -> str:
    """Format a socket address, except for Unix sockets with a path."""
    if family == socket.AF_UNIX:
        return f"unix:@{_decode(address[3:])}"
    if family == socket.AF_NETLINK:
        return "netlink"
    port = int.from_bytes(address[2:4])
    if family == socket.AF_INET and len(address) >= 8:
        return f"inet:{socket.inet_ntop(family, address[4:8])}:{port}"
    if family == socket.AF_INET6 and len(address) >= 24:
        return f"inet:[{socket.inet_ntop(family, address[8:24])}]:{port}"
    return f"family {family}:"


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
