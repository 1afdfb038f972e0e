"""Looks at what a sandbox uses, where the kernel does not hold the limit itself."""

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

MIN_FREE_DISK_TO_START_BYTES = BYTES_PER_GB  # of the host's disk, without which no command is begun
MIN_FREE_BYTES = BYTES_PER_GB // 2  # of the host's disk and memory, which no command may use up
MAPPED_SCAN_TIMEOUT_S = (
    0.2  # seconds for a look at mapped files, each of which waits until its process is not just forking
)
TMPFS_PATHS = ("tmp", "var/tmp", "dev/shm", "home/agent")  # file systems in memory


class LimitMonitor:
    """The limits of one sandboxed command."""

    def __init__(self, workspace: Path, limits: Limits, group: Cgroup, tree: ProcessTree) -> None:
        self.workspace, self.limits, self.group, self.tree = workspace, limits, group, tree
        self._peak_mb = 0.0
        self._workspace_device = workspace.stat().st_dev
        self._next_memory_check = time.monotonic() + 0.1
        self._next_scan = time.monotonic() + 0.5
        self._earliest_scan = 0.0
        self._bytes_left, self._free_at_last_scan = (
            int(limits.disk_gb * BYTES_PER_GB),
            _free_disk_bytes(workspace),
        )

    @property
    def peak_mb(self) -> float:
        """The most memory seen in use by all processes together; for the shortest commands, file cache included."""
        return self._peak_mb or self.group.peak_mb

    def check_limits(self, after_reply: bool = False) -> Limit | None:
        """Which limit is overstepped; asked often, it looks only when it is time to.

        What answers may have lost a child for want of memory just now, and goes on as if nothing had been.
        """
        if after_reply and self.group.had_oom_kill:
            return "memory"
        now = time.monotonic()
        if now < self._next_memory_check:
            return None
        if self._is_memory_exceeded():
            return "memory"
        took = time.monotonic() - now
        self._next_memory_check = now + max(0.1, 5 * took)
        free = _free_disk_bytes(self.workspace)
        if free < MIN_FREE_BYTES or (self._is_scan_due(free) and self._is_disk_exceeded()):
            return "disk"
        # Some refusals are an honest mistake, which the command may handle; a fork bomb never tires of them.
        return "processes" if self.group.refused_forks > 10 * self.limits.processes else None

    def check_limits_at_exit(self, failed: bool) -> Limit | None:
        """Which limit was overstepped in the end; only a command that failed is worth a last look at the disk."""
        if self.group.had_oom_kill:
            return "memory"
        if failed and self._is_disk_exceeded():
            return "disk"
        return "processes" if self.group.refused_forks else None

    def _is_memory_exceeded(self) -> bool:
        grouped = "memory" in self.group.folders
        used = self.group.memory_bytes if grouped else self._sum_memory_bytes()
        self._peak_mb = max(self._peak_mb, min(used, self.limits.memory_gb * BYTES_PER_GB) / 2**20)
        return (
            self.group.had_oom_kill
            if grouped
            else used > self.limits.memory_gb * BYTES_PER_GB or _free_memory_bytes() < MIN_FREE_BYTES
        )

    def _sum_memory_bytes(self) -> int:
        """Without control groups: pages of processes, of file systems in memory and of files without a name."""
        used = sum(_read_pss_bytes(pid) for pid in self.tree.pids()) + self._sum_open_deleted_bytes(
            _find_memfd_device()
        )
        for name in TMPFS_PATHS if self.tree.has_pid_namespace else ():
            with suppress(OSError):
                place = os.statvfs(f"/proc/{self.tree.root_pid}/root/{name}")
                used += (place.f_blocks - place.f_bfree) * place.f_frsize
        return used

    def _sum_open_deleted_bytes(self, device: int) -> int:
        """Bytes of files that have no name any more, which processes hold open; hiding them is as good as too many."""
        found = {}
        for pid in self.tree.pids():
            try:
                for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - a path object for each descriptor costs
                    with suppress(OSError):
                        status = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116
                        if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device:
                            found[status.st_ino] = status.st_blocks * 512
            except PermissionError:
                if is_alive(pid) and not (
                    pid == self.tree.root_pid and self.tree.has_pid_namespace
                ):  # which is bwrap's own
                    return sys.maxsize
            except OSError:
                continue
        return sum(found.values())

    def _sum_mapped_deleted_bytes(self, device: int) -> int:
        """Bytes of files that have no name any more, and that processes have only mapped into their memory."""
        found, deadline = {}, time.monotonic() + MAPPED_SCAN_TIMEOUT_S
        for pid in self.tree.pids():
            if time.monotonic() > deadline:
                break
            with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:  # noqa: PTH123
                for line in maps:
                    if line.endswith(b" (deleted)\n"):
                        start, end = (int(address, 16) for address in line.split(None, 1)[0].split(b"-"))
                        try:
                            status = os.stat(f"/proc/{pid}/map_files/{start:x}-{end:x}")  # noqa: PTH116
                        except PermissionError:  # only root may see how large the file is
                            found[line.split()[4]] = end - start
                            continue
                        if status.st_dev == device and not status.st_nlink:
                            found[b"%d" % status.st_ino] = status.st_blocks * 512
        return sum(found.values())

    def _is_scan_due(self, free: int) -> bool:
        """Whether it is time, or the disk has lost more since the last scan than the workspace might still take."""
        now = time.monotonic()
        return now >= self._next_scan or (
            now >= self._earliest_scan and self._free_at_last_scan - free > self._bytes_left
        )

    def _is_disk_exceeded(self) -> bool:
        started, self._free_at_last_scan = time.monotonic(), _free_disk_bytes(self.workspace)
        unnamed = self._sum_open_deleted_bytes(self._workspace_device) + self._sum_mapped_deleted_bytes(
            self._workspace_device
        )
        usage = DiskUsage(
            self.workspace, int(self.limits.disk_gb * BYTES_PER_GB) - unnamed, self.limits.files
        )
        self._bytes_left = usage.bytes_left
        took = time.monotonic() - started
        self._next_scan = time.monotonic() + max(0.25, 20 * took)  # at most a twentieth of one core
        self._earliest_scan = time.monotonic() + 4 * took
        return usage.is_over_limit or usage.bytes_left <= 0

    def close(self) -> None:
        """Give back the control group."""
        self.group.close()


def require_free_disk(workspace: Path) -> None:
    """A disk that is full before a command begins is not the agent's fault."""
    if _free_disk_bytes(workspace) < MIN_FREE_DISK_TO_START_BYTES:
        raise SandboxFault(
            f"less than {MIN_FREE_DISK_TO_START_BYTES // BYTES_PER_GB} GB is free on the disk of {workspace}"
        )


def _free_disk_bytes(folder: Path) -> int:
    try:
        disk = os.statvfs(folder)
    except FileNotFoundError:  # an unsandboxed script can even remove it
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
    """The number of the file system in which the kernel keeps files that are only memory."""
    fd = os.memfd_create("probe")
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
