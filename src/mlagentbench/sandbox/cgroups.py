"""Control groups: limits on memory and processes that no fork can escape.

Version 2 is used where it is delegated to us, or where the user's systemd delegates one on request; version 1
where it is writable. Elsewhere there are no cgroups, and the caller falls back to rlimits and polling. A
cgroup is named after the harness process that created it, so that the next harness can remove what a killed
one left behind.
"""

import itertools
import os
import shutil
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
SYSTEMD_TIMEOUT_S = 5
REMOVE_TIMEOUT_S = 5  # for a cgroup to become empty; the next harness removes what is left after that
_cgroup_numbers = itertools.count(1)
_lock = threading.Lock()


@cache
def find_controller_folders() -> dict[str, Path]:
    """For each controller the folder in which we may create cgroups; {} if we may not."""
    parents = _find_v2_folders() or _find_v1_folders()
    if not parents and _enter_systemd_scope():
        parents = _find_v2_folders()
    for parent in set(parents.values()):
        _remove_stale_cgroups(parent)
    return parents


def _find_v2_folders() -> dict[str, Path]:
    with suppress(OSError):
        own = _own_v2_folder()
        # A cgroup that holds processes cannot enable controllers for children: ours usually does not
        # qualify, and the nearest ancestor that does is used.
        for folder in (own, *(parent for parent in own.parents if parent.is_relative_to(CGROUP_ROOT))):
            controllers = (folder / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= set(controllers) and _can_create_cgroups(folder, unified=True):
                return {"memory": folder, "pids": folder}
    return {}


def _enter_systemd_scope() -> bool:
    """Ask the user's systemd for a delegated cgroup, and move this process there; returns whether it did.

    An ssh session has a cgroup of the system's, in which its user may not create others.
    """
    if os.geteuid() == 0 or not (CGROUP_ROOT / "cgroup.controllers").is_file() or not shutil.which("busctl"):
        return False
    name = f"{CGROUP_PREFIX}{os.getpid()}.scope"
    manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"]
    settings = ["PIDs", "au", "1", str(os.getpid()), "Delegate", "b", "true"]
    call = ["StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", "2", *settings, "0"]
    command = ["busctl", "--user", f"--timeout={SYSTEMD_TIMEOUT_S}", "call", *manager, *call]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        return False
    deadline = time.monotonic() + SYSTEMD_TIMEOUT_S
    while (scope := _own_v2_folder()).name != name:  # systemd moves us after it has answered
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    try:
        # A cgroup that delegates controllers to others may not hold processes itself.
        harness = scope / "harness"
        harness.mkdir()
        for pid in _read_pids(scope):
            (harness / "cgroup.procs").write_text(str(pid))
        (scope / "cgroup.subtree_control").write_text("+memory +pids")
    except OSError:
        return False
    return True


def _own_v2_folder() -> Path:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return CGROUP_ROOT / next((line[3:].lstrip("/") for line in lines if line[:3] == "0::"), "")


def _find_v1_folders() -> dict[str, Path]:
    folders = {}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, own = line.split(":", 2)
            for controller in {"memory", "pids"} & set(controllers.split(",")):
                folder = CGROUP_ROOT / controllers / own.lstrip("/")
                if _can_create_cgroups(folder, unified=False):
                    folders[controller] = folder
    return folders


def _join_file_name(unified: bool) -> str:
    """The file to join a cgroup by; in version 1, moving one thread avoids a 10 ms wait for all cores."""
    return "cgroup.procs" if unified else "tasks"


def _can_create_cgroups(parent: Path, unified: bool) -> bool:
    """Whether we can create a cgroup here and move a process into it."""
    trial = parent / _cgroup_name("trial")
    join = ["/bin/sh", "-c", 'echo 0 >"$1"', "sh", str(trial / _join_file_name(unified))]
    try:
        trial.mkdir()
        return subprocess.run(join, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False
    finally:
        _remove_cgroup(trial)


def _remove_stale_cgroups(parent: Path) -> None:
    """Remove the cgroups of harness processes that have exited, and kill what still runs in them."""
    prefix = f"{CGROUP_PREFIX}{_namespace_id()}-"
    for folder in parent.glob(f"{prefix}*-*-*"):
        pid, start_time, _ = folder.name.removeprefix(prefix).split("-", 2)
        if pid.isdigit() and _read_start_time(pid) != start_time:
            _remove_cgroup(folder, timeout_s=1)


def _cgroup_name(suffix: int | str) -> str:
    return f"{CGROUP_PREFIX}{_namespace_id()}-{os.getpid()}-{_read_start_time(os.getpid())}-{suffix}"


@cache
def _namespace_id() -> str:
    """The namespaces in which our pids and start times are valid.

    A process of another namespace cannot tell whether a harness of ours is still running.
    """
    return ".".join(str(Path("/proc/self/ns", namespace).stat().st_ino) for namespace in ("pid", "time"))


def _read_start_time(pid: int | str) -> str:
    """When a process started, which tells it from a later one with the same pid; "" if it has exited.

    An exited process may stay a zombie for long, where the init process of a container does not reap.
    """
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
        return fields[19] if fields[0] not in "ZX" else ""
    return ""


class Cgroup:
    """The limits of one sandbox, in every controller that is available on this machine."""

    def __init__(self, memory: int, processes: int) -> None:
        with _lock:
            parents = find_controller_folders()
        name = _cgroup_name(next(_cgroup_numbers))
        self.folders = {controller: parent / name for controller, parent in parents.items()}
        self.unified = len(set(parents.values())) < len(parents)
        settings = {"pids": {"pids.max": processes}}
        if self.unified:
            settings["memory"] = {"memory.max": memory, "memory.swap.max": 0}
        else:
            settings["memory"] = {
                "memory.limit_in_bytes": memory,
                "memory.memsw.limit_in_bytes": memory,
                # Socket buffers of any kind, which are counted separately.
                "memory.kmem.tcp.limit_in_bytes": memory // 4,
            }
        try:
            for controller, folder in self.folders.items():
                folder.mkdir(exist_ok=self.unified)
                for file, value in settings[controller].items():
                    with suppress(FileNotFoundError):  # a kernel without swap accounting
                        (folder / file).write_text(str(value))
        except OSError as error:
            self.close()
            raise SandboxFault(f"Cannot create a control group: {error}") from error

    @property
    def join_files(self) -> list[str]:
        """The files to which a single-threaded process writes 0 to join."""
        return [str(folder / _join_file_name(self.unified)) for folder in sorted(set(self.folders.values()))]

    def add_process(self, pid: int) -> None:
        """Move in a process that another program started; if that is refused, do without a cgroup."""
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
        """Whether the kernel killed a process because memory ran out."""
        file = "memory.events" if self.unified else "memory.oom_control"
        return self._read_counter("memory", file, "oom_kill") > 0

    @property
    def refused_forks(self) -> int:
        """How often a fork was refused."""
        return self._read_counter("pids", "pids.events", "max")

    @property
    def memory_bytes(self) -> int:
        """Memory in use now, without file cache."""
        return self._read_counter("memory", "memory.stat", "anon" if self.unified else "total_rss")

    @property
    def peak_mb(self) -> float:
        """Peak memory, including file cache."""
        file = "memory.peak" if self.unified else "memory.max_usage_in_bytes"
        with suppress(OSError, KeyError):
            return int((self.folders["memory"] / file).read_text()) / 2**20
        return 0.0

    def _read_counter(self, controller: str, file: str, key: str) -> int:
        with suppress(OSError, KeyError):
            for line in (self.folders[controller] / file).read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
        return 0

    def close(self) -> None:
        """Remove the cgroup, and kill what is left in it."""
        for folder in set(self.folders.values()):
            _remove_cgroup(folder)


def _read_pids(folder: Path) -> list[int]:
    """The processes in a cgroup, without those of other pid namespaces.

    The kernel lists those as 0, which kill() would take for our own process group.
    """
    with suppress(OSError):
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split() if pid != "0"]
    return []


def _remove_cgroup(folder: Path, timeout_s: float = REMOVE_TIMEOUT_S) -> None:
    """Kill all processes in a cgroup, then remove it once they are reaped: mostly within microseconds."""
    deadline = time.monotonic() + timeout_s
    while folder.is_dir() and time.monotonic() < deadline:
        for pid in _read_pids(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.0002)
