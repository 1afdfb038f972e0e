"""Checks the limits of a command by polling, where the kernel does not enforce them."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mlagentbench.errors import SandboxFault
from mlagentbench.records import BYTES_PER_GB, Limit, Limits
from mlagentbench.sandbox.cgroups import Cgroup
from mlagentbench.sandbox.disk_usage import DiskUsage, folder_bytes
from mlagentbench.sandbox.process_usage import (
    count_open_files,
    has_descriptors_in_transit,
    iterate_deleted_mappings,
    read_kilobytes,
    read_memory_bytes,
)
from mlagentbench.sandbox.processes import ProcessTree, count_threads

MIN_FREE_DISK_TO_START_BYTES = BYTES_PER_GB  # with less free disk on the host, no command is started
MIN_FREE_BYTES = BYTES_PER_GB // 2  # of the host's disk and memory, which no command may use up
OTHER_PROGRAMS_BYTES = BYTES_PER_GB // 4  # that other programs may write to the disk meanwhile
MAX_SOCKET_BYTES = 10 * 2**20  # that one socket can hold: the kernel's largest buffers for TCP
MAX_S_OVER_PROCESS_LIMIT = 2  # a script may handle a refused fork; a fork bomb goes on
TMPFS_PATHS = ("tmp", "var/tmp", "dev/shm", "home/agent")
# Without cgroups: shared memory that each running command is known to use.
_known_shared_bytes: dict["LimitMonitor", int] = {}


class LimitMonitor:
    """Monitors the limits of one command."""

    def __init__(
        self,
        folders: Sequence[Path],
        limits: Limits,
        cgroup: Cgroup,
        tree: ProcessTree,
        memory_folder: Path | None = None,
    ) -> None:
        """Start to monitor.

        Args:
            folders: The folders that the command can change; the first is the workspace.
            limits: The limits.
            cgroup: The cgroup of the command.
            tree: Its processes.
            memory_folder: A folder of the command whose files are in memory, if it has one on the host.
        """
        self.folders, self.limits, self.cgroup, self.tree = folders, limits, cgroup, tree
        self.workspace = workspace = folders[0]
        self._memory_folder = memory_folder
        self._peak_mb = 0.0
        self._peak_threads = 0
        self._over_process_limit_since: float | None = None
        self._other_shared_bytes = _read_other_shared_bytes()
        self._free_memory_at_start = _free_memory_bytes()
        self._has_file_of_unknown_size = False
        self._workspace_device = workspace.stat().st_dev
        self._next_memory_check = time.monotonic() + 0.1
        self._next_scan = time.monotonic() + 0.5
        self._earliest_scan = 0.0
        self._bytes_left = int(limits.disk_gb * BYTES_PER_GB)
        self._free_at_start = self._free_at_last_scan = _free_disk_bytes(workspace)

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
        if self._is_fork_bomb():
            return "processes"
        if self._over_process_limit_since:  # measuring the memory of so many processes would take too long
            self._next_memory_check = now + 0.1
            return None
        if self._is_memory_exceeded():
            return "memory"
        elapsed = time.monotonic() - now
        self._next_memory_check = now + max(0.1, 5 * elapsed)
        free = _free_disk_bytes(self.workspace)
        if free < MIN_FREE_BYTES or (self._is_scan_due(free) and self._is_disk_exceeded()):
            return "disk"
        return None

    def check_limits_at_exit(self, failed: bool) -> Limit | None:
        """Return the limit that was exceeded when the command exited; disk is checked only if it failed."""
        if self.cgroup.had_oom_kill:
            return "memory"
        if failed and self._is_disk_exceeded():
            return "disk"
        over_limit = self.cgroup.refused_forks or self._peak_threads > self.limits.processes
        return "processes" if over_limit else None

    def _is_fork_bomb(self) -> bool:
        """Whether forks are refused again and again; a few may be a mistake that the command handles."""
        maximum, now = self.limits.processes, time.monotonic()
        if "pids" in self.cgroup.folders:
            return self.cgroup.refused_forks > 10 * maximum
        threads = count_threads(self.tree.pids())
        self._peak_threads = max(self._peak_threads, threads)
        if threads <= maximum:
            self._over_process_limit_since = None
            return False
        self._over_process_limit_since = self._over_process_limit_since or now
        return threads > 2 * maximum or now - self._over_process_limit_since > MAX_S_OVER_PROCESS_LIMIT

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
        memory = [read_memory_bytes(pid) for pid in self.tree.pids()]
        device = _find_memfd_device()
        open_files = count_open_files(self.tree, device)
        shared = sum(mapped for _, mapped in memory) + open_files.deleted_bytes
        for path in TMPFS_PATHS if self.tree.has_pid_namespace else ():
            with suppress(OSError):
                file_system = os.statvfs(f"/proc/{self.tree.root_pid}/root/{path}")
                shared += (file_system.f_blocks - file_system.f_bfree) * file_system.f_frsize
        if self._memory_folder:
            shared += folder_bytes(self._memory_folder)
        _known_shared_bytes[self] = shared
        used = sum(private for private, _ in memory) + shared
        limit = self.limits.memory_gb * BYTES_PER_GB
        # Pages of a file without a name that are not mapped any more, or of one on its way through a socket,
        # are in no figure of a process. They are missing from the shared memory of the machine.
        hidden = _read_other_shared_bytes() - self._other_shared_bytes
        if used + hidden > limit >= used and (
            self._maps_deleted_file(device) or has_descriptors_in_transit(self.tree)
        ):
            used += hidden
        # What is queued in sockets is in no figure either, but the memory of the machine shrinks.
        if used + open_files.sockets * MAX_SOCKET_BYTES > limit:
            used = max(used, self._free_memory_at_start - _free_memory_bytes())
        return used

    def _maps_deleted_file(self, device: int) -> bool:
        """Whether a process maps a file of the device that has no name."""
        device_name = b" %02x:%02x " % (os.major(device), os.minor(device))
        return any(device_name in mapping.line for mapping in iterate_deleted_mappings(self.tree))

    def _sum_mapped_deleted_bytes(self, device: int) -> int:
        """Bytes of deleted files that processes hold only as memory mappings."""
        sizes: dict[bytes, int] = {}
        self._has_file_of_unknown_size = False
        device_name = b"%02x:%02x" % (os.major(device), os.minor(device))
        for mapping in iterate_deleted_mappings(self.tree):
            addresses, _, _, line_device, inode, *_ = mapping.line.split(None, 5)
            start, end = (int(address, 16) for address in addresses.split(b"-"))
            try:
                status = os.stat(f"/proc/{mapping.pid}/map_files/{start:x}-{end:x}")  # noqa: PTH116
            except OSError as error:
                # Only root can see the size of the file, and only while the first thread is alive.
                is_hidden = isinstance(error, PermissionError) or mapping.has_lost_first_thread
                if is_hidden and line_device == device_name:
                    sizes[inode] = max(sizes.get(inode, 0), end - start)
                    self._has_file_of_unknown_size = True
                continue
            if status.st_dev == device and not status.st_nlink:
                sizes[inode] = status.st_blocks * 512
        return sum(sizes.values())

    def _is_scan_due(self, free: int) -> bool:
        """Whether it is time, or the disk has lost more since the last scan than the workspace may grow."""
        now = time.monotonic()
        lost = self._free_at_last_scan - free
        return now >= self._next_scan or (now >= self._earliest_scan and lost > self._bytes_left)

    def _is_disk_exceeded(self) -> bool:
        started, self._free_at_last_scan = time.monotonic(), _free_disk_bytes(self.workspace)
        deleted = count_open_files(self.tree, self._workspace_device).deleted_bytes
        deleted += self._sum_mapped_deleted_bytes(self._workspace_device)
        max_bytes = int(self.limits.disk_gb * BYTES_PER_GB) - deleted
        usage = DiskUsage(self.folders, max_bytes, self.limits.files)
        self._bytes_left = usage.bytes_left
        elapsed = time.monotonic() - started
        self._next_scan = time.monotonic() + max(0.25, 20 * elapsed)  # at most a twentieth of one core
        self._earliest_scan = time.monotonic() + 4 * elapsed
        lost = self._free_at_start - _free_disk_bytes(self.workspace) - OTHER_PROGRAMS_BYTES
        hides_bytes = self._has_file_of_unknown_size and lost > self.limits.disk_gb * BYTES_PER_GB
        return usage.is_over_limit or usage.bytes_left <= 0 or hides_bytes

    def close(self) -> None:
        """Remove the cgroup."""
        _known_shared_bytes.pop(self, None)
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
    return read_kilobytes("/proc/meminfo", "MemAvailable:").get("MemAvailable:", MIN_FREE_BYTES)


def _read_other_shared_bytes() -> int:
    """Shared memory of the machine that is not known to belong to a command of this harness."""
    shared = read_kilobytes("/proc/meminfo", "Shmem:").get("Shmem:", 0)
    return shared - sum(list(_known_shared_bytes.values()))


def _find_memfd_device() -> int:
    """The device number of the kernel's file system for memfd files."""
    fd = os.memfd_create("probe")
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
