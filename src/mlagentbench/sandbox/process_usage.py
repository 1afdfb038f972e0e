"""Measures what processes hold: memory, files that have no name any more, and sockets.

Once the first thread of a process has exited, /proc/<pid> shows none of it, even if other threads continue:
then one of those is read. All threads of a process share memory and descriptors: `seccomp.py` refuses threads
with descriptors of their own.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mlagentbench.sandbox.processes import ProcessTree, find_living_thread, is_alive

MAPPED_SCAN_TIMEOUT_S = 0.2  # to scan mapped files: reading the mappings of a process blocks while it forks


class OpenFiles(NamedTuple):
    """What processes hold open: bytes of deleted files on one device, and how many sockets."""

    deleted_bytes: int
    sockets: int


class DeletedMapping(NamedTuple):
    """A line of /proc/<pid>/maps about a file that has no name."""

    pid: int
    line: bytes
    has_lost_first_thread: bool


def read_memory_bytes(pid: int) -> tuple[int, int]:
    """Memory of a process, its part of what it shares included: (private or from files, shared memory).

    Page tables count: a process can fill gigabytes with them by reading memory that it never wrote.
    """
    thread = find_living_thread(pid)
    sizes = read_kilobytes(f"/proc/{thread}/smaps_rollup", "Pss:", "Pss_Shmem:")
    tables = read_kilobytes(f"/proc/{thread}/status", "VmPTE:").get("VmPTE:", 0)
    shared = sizes.get("Pss_Shmem:", 0)
    return sizes.get("Pss:", 0) - shared + tables, shared


def read_kilobytes(path: str, *names: str) -> dict[str, int]:
    """The values of these lines of a file in /proc, in bytes."""
    values = {}
    with suppress(OSError, ValueError, IndexError):
        # The name of a process, which is in its status, may be any bytes.
        for line in Path(path).read_text("utf-8", "replace").splitlines():
            words = line.split()
            if words and words[0] in names:
                values[words[0]] = int(words[1]) * 1024
    return values


def count_open_files(tree: ProcessTree, device: int) -> OpenFiles:
    """What the processes hold open; one that hides its descriptors counts as over any limit."""
    sizes: dict[int, int] = {}
    sockets: set[int] = set()
    for pid in tree.pids():
        thread = find_living_thread(pid)
        try:
            for name in os.listdir(f"/proc/{thread}/fd"):  # noqa: PTH208 - faster than Path
                with suppress(OSError):
                    status = os.stat(f"/proc/{thread}/fd/{name}")  # noqa: PTH116
                    if stat.S_ISSOCK(status.st_mode):
                        sockets.add(status.st_ino)
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device:
                        sizes[status.st_ino] = status.st_blocks * 512
        except PermissionError:
            is_bwrap = pid == tree.root_pid and tree.has_pid_namespace
            if is_alive(thread) and not is_bwrap:
                return OpenFiles(sys.maxsize, len(sockets))
        except OSError:
            continue
    return OpenFiles(sum(sizes.values()), len(sockets))


def has_descriptors_in_transit(tree: ProcessTree) -> bool:
    """Whether a socket holds descriptors that no process has received yet."""
    for pid in tree.pids():
        folder = f"/proc/{find_living_thread(pid)}/fdinfo"
        with suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208
                with suppress(OSError):
                    words = Path(folder, name).read_text().split()
                    if "scm_fds:" in words and words[words.index("scm_fds:") + 1] != "0":
                        return True
    return False


def iterate_deleted_mappings(tree: ProcessTree) -> Iterator[DeletedMapping]:
    """The mappings of files that have no name, as long as there is time to read them."""
    deadline = time.monotonic() + MAPPED_SCAN_TIMEOUT_S
    for pid in tree.pids():
        if time.monotonic() > deadline:
            return
        thread = find_living_thread(pid)
        with suppress(OSError), open(f"/proc/{thread}/maps", "rb") as maps:  # noqa: PTH123
            for line in maps:
                if line.endswith(b" (deleted)\n"):
                    yield DeletedMapping(pid, line, thread != str(pid))
