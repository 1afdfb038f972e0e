"""Control groups: limits on memory and processes that no fork escapes.

Version 2 is used where it is delegated to us, version 1 where it is writable, and otherwise there is none: the caller
then falls back to rlimits and a watchdog. A group is named after the harness that made it, so that the next harness
can remove what a killed one left behind.
"""

import itertools
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from mlagentbench.errors import SandboxFault

CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_PREFIX = "mlagentbench-"
REMOVE_TIMEOUT_S = 5  # seconds for a group to become empty; what is left then, the next harness sweeps away
_cgroup_numbers = itertools.count(1)
_lock = threading.Lock()


@cache
def find_controller_folders() -> dict[str, Path]:
    """The folder for each controller below which we may make groups: {} where we may not."""
    places = _find_v2_folders() or _find_v1_folders()
    for place in set(places.values()):
        _remove_stale_cgroups(place)
    return places


def _find_v2_folders() -> dict[str, Path]:
    with suppress(OSError):
        for name in (
            line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"
        ):
            own = CGROUP_ROOT / name.lstrip("/")
            # A group that holds processes hands no controllers on, so ours will not do; the nearest above that does.
            for place in (own, *(above for above in own.parents if above.is_relative_to(CGROUP_ROOT))):
                given = (place / "cgroup.subtree_control").read_text().split()
                if {"memory", "pids"} <= set(given) and _can_create_cgroups(place, unified=True):
                    return {"memory": place, "pids": place}
    return {}


def _find_v1_folders() -> dict[str, Path]:
    places = {}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, own = line.split(":", 2)
            for name in {"memory", "pids"} & set(names.split(",")):
                place = CGROUP_ROOT / names / own.lstrip("/")
                if _can_create_cgroups(place, unified=False):
                    places[name] = place
    return places


def _join_file_name(unified: bool) -> str:
    """A thread that moves only itself need not wait, as for a whole process, until every core has taken note: 10 ms."""
    return "cgroup.procs" if unified else "tasks"


def _can_create_cgroups(place: Path, unified: bool) -> bool:
    """Whether a process of ours can be put into a group of ours."""
    trial = place / _cgroup_name("trial")
    join = ["/bin/sh", "-c", 'echo 0 >"$1"', "sh", str(trial / _join_file_name(unified))]
    try:
        trial.mkdir()
        return subprocess.run(join, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False
    finally:
        _remove_cgroup(trial)


def _remove_stale_cgroups(place: Path) -> None:
    """Remove the groups of harnesses that are no more, with whatever still runs in them."""
    for group in place.glob(f"{CGROUP_PREFIX}{_namespace_id()}-*-*-*"):
        owner, born, _ = group.name.removeprefix(f"{CGROUP_PREFIX}{_namespace_id()}-").split("-", 2)
        if owner.isdigit() and _read_start_time(owner) != born:
            _remove_cgroup(group, timeout_s=1)


def _cgroup_name(what: int | str) -> str:
    return f"{CGROUP_PREFIX}{_namespace_id()}-{os.getpid()}-{_read_start_time(os.getpid())}-{what}"


@cache
def _namespace_id() -> str:
    """Where our numbers and times of processes hold: who has others cannot tell whether a harness is no more."""
    return ".".join(str(Path("/proc/self/ns", kind).stat().st_ino) for kind in ("pid", "time"))


def _read_start_time(pid: int | str) -> str:
    """When a process started, which tells it from a later one with the same number; empty if it is dead.

    It may be dead for long and not buried, where the first process of a container waits for nobody.
    """
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
        return fields[19] if fields[0] not in "ZX" else ""
    return ""


class Cgroup:
    """The limits of one sandbox, in every controller that this machine gives us."""

    def __init__(self, memory: int, processes: int) -> None:
        with _lock:
            places = find_controller_folders()
        name = _cgroup_name(next(_cgroup_numbers))
        self.folders = {kind: place / name for kind, place in places.items()}
        self.unified = len(set(places.values())) < len(places)
        bounds = {"pids": {"pids.max": processes}}
        if self.unified:
            bounds["memory"] = {"memory.max": memory, "memory.swap.max": 0}
        else:
            bounds["memory"] = {
                "memory.limit_in_bytes": memory,
                "memory.memsw.limit_in_bytes": memory,
                "memory.kmem.tcp.limit_in_bytes": memory
                // 4,  # what waits in sockets of any kind, counted apart
            }
        try:
            for kind, folder in self.folders.items():
                folder.mkdir(exist_ok=self.unified)
                for file, value in bounds[kind].items():
                    with suppress(FileNotFoundError):  # a kernel that does not account for swap
                        (folder / file).write_text(str(value))
        except OSError as error:
            self.close()
            raise SandboxFault(f"no control group can be made: {error}") from error

    @property
    def join_files(self) -> list[str]:
        """The files into which a process of one thread writes 0 to join."""
        return [str(folder / _join_file_name(self.unified)) for folder in sorted(set(self.folders.values()))]

    def add_process(self, pid: int) -> None:
        """Take a process in that somebody else began; where that is refused, there are no groups here."""
        try:
            for folder in set(self.folders.values()):
                (folder / "cgroup.procs").write_text(str(pid))
        except OSError:
            self.close()
            self.folders = {}

    @property
    def pids(self) -> list[int]:
        """The processes in it."""
        return _read_pids(next(iter(self.folders.values())))

    @property
    def had_oom_kill(self) -> bool:
        """Whether the kernel had to kill something for want of memory."""
        return (
            self._read_counter(
                "memory", "memory.events" if self.unified else "memory.oom_control", "oom_kill"
            )
            > 0
        )

    @property
    def refused_forks(self) -> int:
        """How often a fork was refused."""
        return self._read_counter("pids", "pids.events", "max")

    @property
    def memory_bytes(self) -> int:
        """Bytes in use now, file cache not included."""
        return self._read_counter("memory", "memory.stat", "anon" if self.unified else "total_rss")

    @property
    def peak_mb(self) -> float:
        """The most memory that was in use, file cache included."""
        file = "memory.peak" if self.unified else "memory.max_usage_in_bytes"
        with suppress(OSError, KeyError):
            return int((self.folders["memory"] / file).read_text()) / 2**20
        return 0.0

    def _read_counter(self, kind: str, file: str, key: str) -> int:
        with suppress(OSError, KeyError):
            for line in (self.folders[kind] / file).read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
        return 0

    def close(self) -> None:
        """Remove the group, with whatever is left in it."""
        for folder in set(self.folders.values()):
            _remove_cgroup(folder)


def _read_pids(folder: Path) -> list[int]:
    """A process of another pid namespace is shown as 0, which to kill() would mean ourselves."""
    with suppress(OSError):
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split() if pid != "0"]
    return []


def _remove_cgroup(folder: Path, timeout_s: float = REMOVE_TIMEOUT_S) -> None:
    """A group can be removed once the kernel has reaped its last process: mostly a matter of microseconds."""
    deadline = time.monotonic() + timeout_s
    while folder.is_dir() and time.monotonic() < deadline:
        for pid in _read_pids(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.0002)
