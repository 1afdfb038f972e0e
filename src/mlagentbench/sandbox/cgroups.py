"""Control groups: limits on memory and processes that no fork escapes.

Version 2 is used where it is delegated to us, version 1 where it is writable, and otherwise there is none: the caller
then falls back to rlimits and a watchdog. A group is named after the harness that made it, so that the next harness
can remove what a killed one left behind.
"""

import itertools
import os
import signal
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PREFIX = "mlagentbench-"
_numbers = itertools.count(1)
_lock = threading.Lock()


@cache
def hierarchies() -> dict[str, Path]:
    """The folder for each controller below which we may make groups: {} where we may not."""
    places = _version_2() or _version_1()
    for place in set(places.values()):
        _sweep(place)
    return places


def _version_2() -> dict[str, Path]:
    with suppress(OSError):
        own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::")
        for place in (ROOT / own.lstrip("/"), (ROOT / own.lstrip("/")).parent):
            given = (place / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= set(given) and _may_make_groups(place):
                return {"memory": place, "pids": place}
    return {}


def _version_1() -> dict[str, Path]:
    places = {}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, own = line.split(":", 2)
            for name in {"memory", "pids"} & set(names.split(",")):
                place = ROOT / names / own.lstrip("/")
                if _may_make_groups(place):
                    places[name] = place
    return places


def _may_make_groups(place: Path) -> bool:
    trial = place / f"{PREFIX}trial-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def _sweep(place: Path) -> None:
    """Remove the groups of harnesses that are no more, with whatever still runs in them."""
    for group in place.glob(f"{PREFIX}*-*"):
        owner = group.name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            with suppress(OSError):
                for pid in (group / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                group.rmdir()


class Group:
    """The limits of one sandbox, in every controller that this machine gives us."""

    def __init__(self, memory: int, processes: int) -> None:
        with _lock:
            places = hierarchies()
        name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        self.folders = {kind: place / name for kind, place in places.items()}
        self.unified = len(set(places.values())) < len(places)
        for folder in set(self.folders.values()):
            folder.mkdir()
        if "memory" in self.folders:
            names = ("memory.max", "memory.swap.max") if self.unified else ("memory.limit_in_bytes",)
            for file, value in zip(names, (memory, 0), strict=False):
                with suppress(FileNotFoundError):  # no swap accounting on this kernel
                    (self.folders["memory"] / file).write_text(str(value))
        if "pids" in self.folders:
            (self.folders["pids"] / "pids.max").write_text(str(processes))

    @property
    def entries(self) -> list[str]:
        """The files into which a process writes itself."""
        return [str(folder / "cgroup.procs") for folder in sorted(set(self.folders.values()))]

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel had to kill something for want of memory."""
        return self._count("memory", "memory.events" if self.unified else "memory.oom_control", "oom_kill") > 0

    @property
    def out_of_processes(self) -> bool:
        """Whether a fork was refused."""
        return self._count("pids", "pids.events", "max") > 0

    @property
    def memory(self) -> int:
        """Bytes in use now, file cache not included."""
        return self._count("memory", "memory.stat", "anon" if self.unified else "total_rss")

    @property
    def peak_mb(self) -> float:
        """The most memory that was in use, file cache included."""
        file = "memory.peak" if self.unified else "memory.max_usage_in_bytes"
        with suppress(OSError, KeyError):
            return int((self.folders["memory"] / file).read_text()) / 2**20
        return 0.0

    def _count(self, kind: str, file: str, key: str) -> int:
        with suppress(OSError, KeyError):
            for line in (self.folders[kind] / file).read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
        return 0

    def close(self) -> None:
        """Remove the group; its processes are dead by now, or about to be."""
        for folder in set(self.folders.values()):
            with suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
            _remove(folder)


def _remove(folder: Path) -> None:
    """A group can be removed as soon as the kernel has reaped its last process: a matter of microseconds."""
    for _ in range(10_000):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            os.sched_yield()
        else:
            return
