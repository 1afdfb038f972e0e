"""Checks the limits of a command by polling, where the kernel does not enforce them."""

import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

from mlagentbench.errors import SandboxFault
from mlagentbench.records import BYTES_PER_GB, Limit, Limits
from mlagentbench.sandbox.cgroups import Cgroup
from mlagentbench.sandbox.disk_usage import DiskUsage
from mlagentbench.sandbox.processes import ProcessTree, is_alive

MIN_FREE_DISK_TO_START_BYTES = BYTES_PER_GB  # with less free disk on the host, no command is started
MIN_FREE_BYTES = BYTES_PER_GB // 2  # of the host's disk and memory, which no command may use up
MAPPED_SCAN_TIMEOUT_S = 0.2  # to scan mapped files: reading the mappings of a process blocks while it forks
TMPFS_PATHS = ("tmp", "var/tmp", "dev/shm", "home/agent")


class LimitMonitor:
    """Monitors the limits of one command."""

    def __init__(self, workspace: Path, limits: Limits, cgroup: Cgroup, tree: ProcessTree) -> None:
        self.workspace, self.limits, self.cgroup, self.tree = workspace, limits, cgroup, tree
        self._peak_mb = 0.0
        self._workspace_device = workspace.stat().st_dev
        self._next_memory_check = time.monotonic() + 0.1
        self._next_scan = time.monotonic() + 0.5
        self._earliest_scan = 0.0
        self._bytes_left = int(limits.disk_gb * BYTES_PER_GB)
        self._free_at_last_scan = _free_disk_bytes(workspace)

    @property
    def peak_mb(self) -> float:
        """Peak memory of all processes together; for very short commands it includes file cache."""
        return self._peak_mb or self.cgroup.peak_mb

    def check_limits(self, after_reply: bool = False) -> Limit | None:
        """Return the limit that is exceeded, or None. May be called often: it measures only when due.

        With `after_reply` out-of-memory kills are checked at once: the interpreter may have lost a child to
        one just now, and would continue as if nothing had happened.
        """
        if after_reply and self.cgroup.had_oom_kill:
            return "memory"
        now = time.monotonic()
        if now < self._next_memory_check:
            return None
        if self._is_memory_exceeded():
            return "memory"
        elapsed = time.monotonic() - now
        self._next_memory_check = now + max(0.1, 5 * elapsed)
        free = _free_disk_bytes(self.workspace)
        if free < MIN_FREE_BYTES or (self._is_scan_due(free) and self._is_disk_exceeded()):
            return "disk"
        # A few refused forks may be a mistake that the command handles; a fork bomb does not stop.
        return "processes" if self.cgroup.refused_forks > 10 * self.limits.processes else None

    def check_limits_at_exit(self, failed: bool) -> Limit | None:
        """Return the limit that was exceeded when the command exited; disk is checked only if it failed."""
        if self.cgroup.had_oom_kill:
            return "memory"
        if failed and self._is_disk_exceeded():
            return "disk"
        return "processes" if self.cgroup.refused_forks else None

    def _is_memory_exceeded(self) -> bool:
        has_cgroup = "memory" in self.cgroup.folders
        limit = self.limits.memory_gb * BYTES_PER_GB
        used = self.cgroup.memory_bytes if has_cgroup else self._sum_memory_bytes()
        self._peak_mb = max(self._peak_mb, min(used, limit) / 2**20)
        if has_cgroup:
            return self.cgroup.had_oom_kill
        return used > limit or _free_memory_bytes() < MIN_FREE_BYTES

    def _sum_memory_bytes(self) -> int:
        """Without a cgroup: memory of processes, of in-memory file systems and of files without a name."""
        used = sum(_read_pss_bytes(pid) for pid in self.tree.pids())
        used += self._sum_open_deleted_bytes(_find_memfd_device())
        for path in TMPFS_PATHS if self.tree.has_pid_namespace else ():
            with suppress(OSError):
                file_system = os.statvfs(f"/proc/{self.tree.root_pid}/root/{path}")
                used += (file_system.f_blocks - file_system.f_bfree) * file_system.f_frsize
        return used

    def _sum_open_deleted_bytes(self, device: int) -> int:
        """Bytes of deleted files that processes hold open.

        A process that hides its descriptors counts as over any limit.
        """
        sizes = {}
        for pid in self.tree.pids():
            try:
                for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - faster than Path
                    with suppress(OSError):
                        status = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116
                        if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device:
                            sizes[status.st_ino] = status.st_blocks * 512
            except PermissionError:
                is_bwrap = pid == self.tree.root_pid and self.tree.has_pid_namespace
                if is_alive(pid) and not is_bwrap:
                    return sys.maxsize
            except OSError:
                continue
        return sum(sizes.values())

    def _sum_mapped_deleted_bytes(self, device: int) -> int:
        """Bytes of deleted files that processes hold only as memory mappings."""
        sizes, deadline = {}, time.monotonic() + MAPPED_SCAN_TIMEOUT_S
        for pid in self.tree.pids():
            if time.monotonic() > deadline:
                break
            with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:  # noqa: PTH123
                for line in maps:
                    if line.endswith(b" (deleted)\n"):
                        start, end = (int(address, 16) for address in line.split(None, 1)[0].split(b"-"))
                        try:
                            status = os.stat(f"/proc/{pid}/map_files/{start:x}-{end:x}")  # noqa: PTH116
                        except PermissionError:  # only root can see the size of the file
                            sizes[line.split()[4]] = end - start
                            continue
                        if status.st_dev == device and not status.st_nlink:
                            sizes[b"%d" % status.st_ino] = status.st_blocks * 512
        return sum(sizes.values())

    def _is_scan_due(self, free: int) -> bool:
        """Whether it is time, or the disk has lost more since the last scan than the workspace may grow."""
        now = time.monotonic()
        lost = self._free_at_last_scan - free
        return now >= self._next_scan or (now >= self._earliest_scan and lost > self._bytes_left)

    def _is_disk_exceeded(self) -> bool:
        started, self._free_at_last_scan = time.monotonic(), _free_disk_bytes(self.workspace)
        deleted = self._sum_open_deleted_bytes(self._workspace_device)
        deleted += self._sum_mapped_deleted_bytes(self._workspace_device)
        max_bytes = int(self.limits.disk_gb * BYTES_PER_GB) - deleted
        usage = DiskUsage(self.workspace, max_bytes, self.limits.files)
        self._bytes_left = usage.bytes_left
        elapsed = time.monotonic() - started
        self._next_scan = time.monotonic() + max(0.25, 20 * elapsed)  # at most a twentieth of one core
        self._earliest_scan = time.monotonic() + 4 * elapsed
        return usage.is_over_limit or usage.bytes_left <= 0

    def close(self) -> None:
        """Remove the cgroup."""
        self.cgroup.close()


def require_free_disk(workspace: Path) -> None:
    """Raise a fault if the disk is already full: that is not the agent's doing."""
    if _free_disk_bytes(workspace) < MIN_FREE_DISK_TO_START_BYTES:
        minimum = MIN_FREE_DISK_TO_START_BYTES // BYTES_PER_GB
        raise SandboxFault(f"Less than {minimum} GB is free on the disk of {workspace}.")


def _free_disk_bytes(folder: Path) -> int:
    try:
        disk = os.statvfs(folder)
    except FileNotFoundError:  # an unsandboxed script may have removed it
        return MIN_FREE_DISK_TO_START_BYTES
    return disk.f_bavail * disk.f_frsize


def _free_memory_bytes() -> int:
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return MIN_FREE_BYTES


def _read_pss_bytes(pid: int) -> int:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _find_memfd_device() -> int:
    """The device number of the kernel's file system for memfd files."""
    fd = os.memfd_create("probe")
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
