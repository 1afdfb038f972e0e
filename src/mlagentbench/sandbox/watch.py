"""Looks at what a sandbox uses, where the kernel does not hold the limit itself."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from mlagentbench.records import Limit, Limits
from mlagentbench.sandbox.cgroups import Group

GB = 2**30
RESERVE = GB  # of the host's disk, which no run may use up


def family(pid: int) -> list[int]:
    """A process and all its descendants, oldest first."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


class Watch:
    """The limits of one sandboxed command."""

    def __init__(self, workspace: Path, limits: Limits, group: Group, pid: int, isolated: bool) -> None:
        self.workspace, self.limits, self.group, self.isolated = workspace, limits, group, isolated
        self.pid = pid
        self._peak = 0.0
        disk = os.statvfs(workspace)
        self._disk = min(limits.disk_gb * GB, max(disk.f_bavail * disk.f_frsize - RESERVE, 0))
        self._next_scan = time.monotonic() + 0.5
        self._next_memory = time.monotonic() + 0.1

    @property
    def peak_mb(self) -> float:
        """The most memory seen in use by all processes together; for the shortest commands, file cache included."""
        return self._peak or self.group.peak_mb

    def limit(self, final: bool = False) -> Limit | None:
        """Which limit was overstepped, if any."""
        if self._memory(final):
            return "memory"
        if self._full(final):
            return "disk"
        return "processes" if final and self.group.out_of_processes else None

    def _memory(self, final: bool) -> bool:
        if final or time.monotonic() < self._next_memory:
            return final and self.group.out_of_memory
        self._next_memory = time.monotonic() + 0.1
        grouped = "memory" in self.group.folders
        used = self.group.memory if grouped else sum(_pss(pid) for pid in family(self.pid))
        self._peak = max(self._peak, used / 2**20)
        return self.group.out_of_memory if grouped else used > self.limits.memory_gb * GB

    def _full(self, final: bool) -> bool:
        """Apparent sizes count, so that a sparse file cannot make the next snapshot endless."""
        started = time.monotonic()
        if final or started < self._next_scan:
            return False
        size = files = 0
        folders = [str(self.workspace)]
        while folders and size <= self._disk and files <= self.limits.files:
            with suppress(OSError):  # a folder that went away, or whose path grew too long to name
                for entry in os.scandir(folders.pop()):
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        status = entry.stat(follow_symlinks=False)
                        size += max(status.st_size, status.st_blocks * 512)
        took = time.monotonic() - started
        self._next_scan = time.monotonic() + max(0.25, 20 * took)  # at most a twentieth of one core
        return size > self._disk or files > self.limits.files

    def kill(self, pid: int) -> None:
        """End a process and everything below it, now."""
        members = [pid] if self.isolated else family(pid)[::-1]
        for member in members:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        if not self.isolated:
            self.kill_leftovers(pid)

    def kill_leftovers(self, pid: int) -> None:
        """Without a pid namespace, descendants must be hunted: they share the command's session."""
        if self.isolated:
            return
        for entry in os.scandir("/proc"):
            with suppress(OSError, ValueError, IndexError):
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == pid and int(entry.name) != pid:
                    os.kill(int(entry.name), signal.SIGKILL)

    def close(self) -> None:
        """Give back the control group."""
        self.group.close()


def _pss(pid: int) -> int:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
