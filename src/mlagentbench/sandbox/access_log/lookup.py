"""Resolves a path as a command inside the sandbox sees it, and tests whether it could be opened."""

import ctypes
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from posixpath import normpath

from mlagentbench.sandbox.seccomp_listener import read_link

SYS_OPENAT2, RESOLVE_IN_ROOT = 437, 0x10
READ_ONLY_PREFIXES = ("/usr/", "/opt/", "/lib", "/bin/", "/sbin/", "/etc/")  # resolved only once
MAX_PATH_STEPS = 200  # when following links
MAX_CACHED_PATHS, MAX_CACHED_PATH_CHARS = 20_000, 500  # the second is per path
ACCESS_BITS = {"read": os.R_OK, "write": os.W_OK, "execute": os.X_OK}
_PROC_PATH = re.compile(r"/proc/(self|thread-self|\d+)(?:/task/\d+)?(/root|/cwd|/exe|/fd/\d+)?((?:/.*)?)")


def absolute_path(tid: int, folder_fd: int | None, path: str) -> str:
    """Make a path absolute, and resolve the links in /proc that differ from process to process."""
    if not path.startswith("/"):
        base = read_link(f"/proc/{tid}/{'cwd' if folder_fd is None else f'fd/{folder_fd}'}")
        path = f"{base}/{path}" if path else base
    return _resolve_proc_links(tid, path) if path.startswith("/proc/") else path


def is_immutable_path(path: str) -> bool:
    """Whether no command can change what the path refers to."""
    return path.startswith(READ_ONLY_PREFIXES) and "/.." not in path and len(path) <= MAX_CACHED_PATH_CHARS


def _resolve_proc_links(tid: int, path: str) -> str:
    for _ in range(8):
        match = _PROC_PATH.fullmatch(re.sub(r"/(?:\.?/)+", "/", path))
        if not match:
            break
        pid, link, rest = match.groups()
        if pid.isdigit() and pid != _read_pid_inside(tid):
            break
        target = read_link(f"/proc/{tid}{link}") if link else ""
        if not target.startswith("/"):
            return f"/proc/self{link or ''}{rest}"
        path = f"{target.rstrip('/')}{rest}" or "/"
    return path


def _read_pid_inside(tid: int) -> str:
    """The pid of a process in its own pid namespace."""
    with suppress(OSError), open(f"/proc/{tid}/status", "rb") as file:  # noqa: PTH123 - without its import
        return next((line.split()[-1].decode() for line in file if line.startswith(b"NStgid:")), "")
    return ""


def _pack_open_how(flags: int) -> bytes:
    return struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC | flags, 0, RESOLVE_IN_ROOT)


class SandboxFiles:
    """The file system as a command sees it."""

    def __init__(self, tid: int) -> None:
        self._root = os.open(f"/proc/{tid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._cache: dict[tuple[str, str], tuple[str, bool]] = {}
        self._syscall = ctypes.CDLL(None).syscall

    def resolve(self, tid: int, path: str, mode: str, creates: bool = False) -> tuple[str, bool]:
        """The path without any links, and whether opening it in this mode would fail."""
        if not is_immutable_path(path):
            resolved = self._resolve(path, mode, creates)
            proc_path = self._follow_links_into_proc(tid, path) if resolved[1] else ""
            return self._resolve(proc_path, mode, creates) if proc_path else resolved
        key = (path, mode)
        if key not in self._cache:
            if len(self._cache) >= MAX_CACHED_PATHS:
                self._cache.clear()
            self._cache[key] = self._resolve(path, mode, creates)
        return self._cache[key]

    def _resolve(self, path: str, mode: str, creates: bool) -> tuple[str, bool]:
        if path.startswith("/proc/self"):  # which would be this process
            return normpath(path), False
        with self._open_path(path) as handle:
            if handle:
                return read_link(handle).removesuffix(" (deleted)"), not os.access(handle, ACCESS_BITS[mode])
        parent, _, name = normpath(path).rpartition("/")
        with self._open_path(parent or "/") as handle:
            if not handle:
                return normpath(path), True
            can_create = creates and os.access(handle, os.W_OK | os.X_OK)
            return f"{read_link(handle).rstrip('/')}/{name}", not can_create

    def _follow_links_into_proc(self, tid: int, path: str) -> str:
        """Where a path leads if it enters /proc through a link, else "".

        In /proc, links lead each process to its own files, so they are resolved for the thread that made the
        call.
        """
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
                return _resolve_proc_links(tid, "/".join([done, name, *left]))
            target = self._read_link_inside(f"{done}/{name}")
            left = [*target.split("/"), *left] if target else left
            done = "" if target.startswith("/") else done if target else f"{done}/{name}"
        return ""

    def _read_link_inside(self, path: str) -> str:
        """The target of a link; "" if it is not a link."""
        with self._open_path(path, os.O_NOFOLLOW) as handle, suppress(OSError):
            return os.readlink("", dir_fd=int(handle.rpartition("/")[2] or -1))
        return ""

    @contextmanager
    def _open_path(self, path: str, flags: int = 0) -> Iterator[str]:
        """A /proc/self/fd path of the file, valid inside the context; "" if there is no such file."""
        name = path.encode("utf-8", "surrogateescape")
        how = _pack_open_how(flags)
        fd = self._syscall(ctypes.c_long(SYS_OPENAT2), self._root, name, how, ctypes.c_size_t(len(how)))
        try:
            yield f"/proc/self/fd/{fd}" if fd >= 0 else ""
        finally:
            if fd >= 0:
                os.close(fd)
