"""Which file a path means inside the sandbox, and whether it could be opened: looked up, and never opened."""

import ctypes
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from posixpath import normpath

from mlagentbench.sandbox.access_log.seccomp_listener import read_link

SYS_OPENAT2, RESOLVE_IN_ROOT = 437, 0x10
READ_ONLY_PREFIXES = (
    "/usr/",
    "/opt/",
    "/lib",
    "/bin/",
    "/sbin/",
    "/etc/",
)  # read-only inside, and so looked up only once
MAX_PATH_STEPS = 200  # along a path with links in it
MAX_CACHED_PATHS, MAX_CACHED_PATH_CHARS = 20_000, 500  # paths kept in mind, and characters of one
ACCESS_BITS = {"read": os.R_OK, "write": os.W_OK, "execute": os.X_OK}
_PROC_PATH = re.compile(r"/proc/(self|thread-self|\d+)(?:/task/\d+)?(/root|/cwd|/exe|/fd/\d+)?((?:/.*)?)")


def absolute_path(thread: int, folder: int | None, path: str) -> str:
    """The path from the root on, seen through the links of /proc that mean something else to each process."""
    if not path.startswith("/"):
        base = read_link(f"/proc/{thread}/{'cwd' if folder is None else f'fd/{folder}'}")
        path = f"{base}/{path}" if path else base
    return _resolve_proc_links(thread, path) if path.startswith("/proc/") else path


def is_immutable_path(path: str) -> bool:
    """Whether nothing that a command does can change what the path means."""
    return path.startswith(READ_ONLY_PREFIXES) and "/.." not in path and len(path) <= MAX_CACHED_PATH_CHARS


def _resolve_proc_links(thread: int, path: str) -> str:
    for _ in range(8):
        found = _PROC_PATH.fullmatch(re.sub(r"/(?:\.?/)+", "/", path))
        if not found:
            break
        who, leads, rest = found.groups()
        if who.isdigit() and who != _read_pid_inside(thread):
            break
        target = read_link(f"/proc/{thread}{leads}") if leads else ""
        if not target.startswith("/"):
            return f"/proc/self{leads or ''}{rest}"
        path = f"{target.rstrip('/')}{rest}" or "/"
    return path


def _read_pid_inside(thread: int) -> str:
    """The number by which a process knows itself."""
    with suppress(OSError), open(f"/proc/{thread}/status", "rb") as file:  # noqa: PTH123 - without its import
        return next((line.split()[-1].decode() for line in file if line.startswith(b"NStgid:")), "")
    return ""


def _pack_open_how(more: int) -> bytes:
    return struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC | more, 0, RESOLVE_IN_ROOT)


class SandboxFiles:
    """The files as the command sees them."""

    def __init__(self, thread: int) -> None:
        self._root = os.open(f"/proc/{thread}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._cache: dict[tuple[str, str], tuple[str, bool]] = {}
        self._syscall = ctypes.CDLL(None).syscall

    def resolve(self, thread: int, path: str, mode: str, creates: bool = False) -> tuple[str, bool]:
        """The file's own name, with no link in it, and whether this way of opening it fails."""
        if not is_immutable_path(path):
            found = self._resolve(path, mode, creates)
            led = self._follow_links_into_proc(thread, path) if found[1] else ""
            return self._resolve(led, mode, creates) if led else found
        key = (path, mode)
        if key not in self._cache:
            if len(self._cache) >= MAX_CACHED_PATHS:
                self._cache.clear()
            self._cache[key] = self._resolve(path, mode, creates)
        return self._cache[key]

    def _resolve(self, path: str, mode: str, creates: bool) -> tuple[str, bool]:
        if path.startswith("/proc/self"):  # which is another process for whoever looks
            return normpath(path), False
        with self._open_path(path) as found:
            if found:
                return read_link(found).removesuffix(" (deleted)"), not os.access(found, ACCESS_BITS[mode])
        above, _, last = normpath(path).rpartition("/")
        with self._open_path(above or "/") as found:
            if not found:
                return normpath(path), True
            return f"{read_link(found).rstrip('/')}/{last}", not (
                creates and os.access(found, os.W_OK | os.X_OK)
            )

    def _follow_links_into_proc(self, thread: int, path: str) -> str:
        """Where the path enters /proc through some link: there each process is led to its own; nothing if nowhere."""
        done, left = "", path.split("/")
        for _ in range(MAX_PATH_STEPS):
            if not left:
                break
            name = left.pop(0)
            if name in ("", "."):
                continue
            if name == "..":
                done = done.rpartition("/")[0]
                continue
            if done == "/proc":
                return _resolve_proc_links(thread, "/".join([done, name, *left]))
            target = self._read_link_inside(f"{done}/{name}")
            left = [*target.split("/"), *left] if target else left
            done = "" if target.startswith("/") else done if target else f"{done}/{name}"
        return ""

    def _read_link_inside(self, path: str) -> str:
        """Where a link leads; nowhere if it is none."""
        with self._open_path(path, os.O_NOFOLLOW) as found, suppress(OSError):
            return os.readlink("", dir_fd=int(found.rpartition("/")[2] or -1))
        return ""

    @contextmanager
    def _open_path(self, path: str, more: int = 0) -> Iterator[str]:
        """A name for what lies there, while it is held; nothing if there is nothing."""
        where = path.encode("utf-8", "surrogateescape")
        fd = self._syscall(
            ctypes.c_long(SYS_OPENAT2), self._root, where, _pack_open_how(more), ctypes.c_size_t(24)
        )
        try:
            yield f"/proc/self/fd/{fd}" if fd >= 0 else ""
        finally:
            if fd >= 0:
                os.close(fd)
