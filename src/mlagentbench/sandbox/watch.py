"""Looks at what a sandbox uses, where the kernel does not hold the limit itself."""

import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

from mlagentbench.errors import SandboxFault
from mlagentbench.records import GB, Limit, Limits
from mlagentbench.sandbox.cgroups import Group
from mlagentbench.sandbox.processes import Tree, is_alive
from mlagentbench.sandbox.usage import Usage

RESERVE = GB  # of the host's disk, without which no command is begun
SPARE = GB // 2  # of the host's disk and memory, which no command may use up
LOOKING = 0.2  # seconds for a look at mapped files, each of which waits until its process is not just forking
TEMPORARY = ("tmp", "var/tmp", "dev/shm", "home/agent")  # file systems in memory


class Watch:
    """The limits of one sandboxed command."""

    def __init__(self, workspace: Path, limits: Limits, group: Group, tree: Tree) -> None:
        self.workspace, self.limits, self.group, self.tree = workspace, limits, group, tree
        self._peak = 0.0
        self._device = workspace.stat().st_dev
        self._next_memory = time.monotonic() + 0.1
        self._next_scan = time.monotonic() + 0.5
        self._soonest_scan = 0.0
        self._left, self._free = int(limits.disk_gb * GB), _free(workspace)

    @property
    def peak_mb(self) -> float:
        """The most memory seen in use by all processes together; for the shortest commands, file cache included."""
        return self._peak or self.group.peak_mb

    def limit(self, answers: bool = False) -> Limit | None:
        """Which limit is overstepped; asked often, it looks only when it is time to.

        What answers may have lost a child for want of memory just now, and goes on as if nothing had been.
        """
        if answers and self.group.out_of_memory:
            return "memory"
        now = time.monotonic()
        if now < self._next_memory:
            return None
        if self._memory():
            return "memory"
        took = time.monotonic() - now
        self._next_memory = now + max(0.1, 5 * took)
        free = _free(self.workspace)
        if free < SPARE or (self._worth_a_scan(free) and self._full()):
            return "disk"
        # Some refusals are an honest mistake, which the command may handle; a fork bomb never tires of them.
        return "processes" if self.group.refused_processes > 10 * self.limits.processes else None

    def last(self, failed: bool) -> Limit | None:
        """Which limit was overstepped in the end; only a command that failed is worth a last look at the disk."""
        if self.group.out_of_memory:
            return "memory"
        if failed and self._full():
            return "disk"
        return "processes" if self.group.refused_processes else None

    def _memory(self) -> bool:
        grouped = "memory" in self.group.folders
        used = self.group.memory if grouped else self._memory_by_hand()
        self._peak = max(self._peak, min(used, self.limits.memory_gb * GB) / 2**20)
        return self.group.out_of_memory if grouped else used > self.limits.memory_gb * GB or _free_memory() < SPARE

    def _memory_by_hand(self) -> int:
        """Without control groups: pages of processes, of file systems in memory and of files without a name."""
        used = sum(_pss(pid) for pid in self.tree.members()) + self._held(_memory_device())
        for name in TEMPORARY if self.tree.isolated else ():
            with suppress(OSError):
                place = os.statvfs(f"/proc/{self.tree.root}/root/{name}")
                used += (place.f_blocks - place.f_bfree) * place.f_frsize
        return used

    def _held(self, device: int) -> int:
        """Bytes of files that have no name any more, which processes hold open; hiding them is as good as too many."""
        found = {}
        for pid in self.tree.members():
            try:
                for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - a path object for each descriptor costs
                    with suppress(OSError):
                        status = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116
                        if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device:
                            found[status.st_ino] = status.st_blocks * 512
            except PermissionError:
                if is_alive(pid) and not (pid == self.tree.root and self.tree.isolated):  # which is bwrap's own
                    return sys.maxsize
            except OSError:
                continue
        return sum(found.values())

    def _mapped(self, device: int) -> int:
        """Bytes of files that have no name any more, and that processes have only mapped into their memory."""
        found, deadline = {}, time.monotonic() + LOOKING
        for pid in self.tree.members():
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

    def _worth_a_scan(self, free: int) -> bool:
        """Whether it is time, or the disk has lost more since the last scan than the workspace might still take."""
        now = time.monotonic()
        return now >= self._next_scan or (now >= self._soonest_scan and self._free - free > self._left)

    def _full(self) -> bool:
        started, self._free = time.monotonic(), _free(self.workspace)
        unnamed = self._held(self._device) + self._mapped(self._device)
        usage = Usage(self.workspace, int(self.limits.disk_gb * GB) - unnamed, self.limits.files)
        self._left = usage.left
        took = time.monotonic() - started
        self._next_scan = time.monotonic() + max(0.25, 20 * took)  # at most a twentieth of one core
        self._soonest_scan = time.monotonic() + 4 * took
        return usage.over or usage.left <= 0

    def close(self) -> None:
        """Give back the control group."""
        self.group.close()


def require_room(workspace: Path) -> None:
    """A disk that is full before a command begins is not the agent's fault."""
    if _free(workspace) < RESERVE:
        raise SandboxFault(f"less than {RESERVE // GB} GB is free on the disk of {workspace}")


def _free(folder: Path) -> int:
    try:
        disk = os.statvfs(folder)
    except FileNotFoundError:  # an unsandboxed script can even remove it
        return RESERVE
    return disk.f_bavail * disk.f_frsize


def _free_memory() -> int:
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return SPARE


def _pss(pid: int) -> int:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _memory_device() -> int:
    """The number of the file system in which the kernel keeps files that are only memory."""
    fd = os.memfd_create("probe")
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
