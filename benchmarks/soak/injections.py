"""What is done to a batch while it works: kills, stops, and resources that end for a moment."""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from benchmarks.soak.leftovers import read_cmdline
from mlagentbench.sandbox.processes import list_process_tree

PROCESS_MODULES = {
    "worker": "mlagentbench.runner.batch.child",
    "grader": "mlagentbench.grading.grader_process",
}
PIDS = Path("/sys/fs/cgroup/pids")
DISK_SIZE = "2g"  # of a disk of its own, which takes no memory until it is used


class FaultInjection(NamedTuple):
    """What is done, once so many runs have ended, and so many seconds later; what ends for a moment ends that long."""

    kind: str
    after: int
    delay: float
    seconds: float


def draw_injections(dice: Random, kinds: tuple[str, ...], runs: int) -> list[FaultInjection]:
    """Some of these, spread over a batch."""
    drawn = [
        FaultInjection(
            dice.choice(kinds),
            dice.randrange(runs * 9 // 10 + 1),
            dice.uniform(0, 0.7),
            dice.uniform(0.2, 1.0),
        )
        for _ in range(dice.randint(3, 6))
    ]
    return sorted(drawn, key=lambda blow: blow.after)


class Target:
    """A batch's process, the disk and the control group that it has to itself, if any."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", disk: Path, group: Path | None, dice: Random
    ) -> None:
        self.process, self.disk, self.group, self.dice = process, disk, group, dice
        self._stopped = False

    def inject(self, blow: FaultInjection) -> str:
        """What was done, or nothing if there was nobody to hit; who is told twice to stop leaves at once."""
        done = blow.kind
        if blow.kind == "batch":
            self.process.kill()
        elif blow.kind == "stop":
            done = "stop again" if self._stopped else "stop"
            self.process.terminate()
            self._stopped = True
        elif blow.kind in ("worker", "grader", "sandbox"):
            done = blow.kind if self._kill(blow.kind) else ""
        else:
            with EXHAUSTED_RESOURCES[blow.kind](self), suppress(subprocess.TimeoutExpired):
                self.process.wait(blow.seconds)
        return done

    def _kill(self, kind: str) -> bool:
        members = list_process_tree(self.process.pid)[1:]
        if kind == "sandbox":
            found = [pid for pid in members if _is_sandboxed(pid)]
        else:
            found = [pid for pid in members if PROCESS_MODULES[kind] in read_cmdline(pid)]
        if found:
            with suppress(ProcessLookupError):
                os.kill(self.dice.choice(found), signal.SIGKILL)
                return True
        return False


def _is_sandboxed(pid: int) -> bool:
    """Whether it is of a sandbox: it sees other processes than we do, or is the one that waits for those."""
    with suppress(OSError):
        other = Path(f"/proc/{pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
        return other or Path(f"/proc/{pid}/comm").read_text().strip() == "bwrap"
    return False


@contextmanager
def exhaust_files(victim: Target) -> Iterator[None]:
    """The harness may open no more files."""
    pid = victim.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + victim.dice.randint(0, 8), before[1]))
        yield
    finally:
        with suppress(ProcessLookupError):  # it may have died of it
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextmanager
def exhaust_processes(victim: Target) -> Iterator[None]:
    """No process and no thread can be begun by the harness, or by whatever it started."""
    group = victim.group
    assert group
    now = int((group / "pids.current").read_text())
    try:
        (group / "pids.max").write_text(str(max(now + victim.dice.randint(-2, 2), 0)))
        yield
    finally:
        (group / "pids.max").write_text("max")


@contextmanager
def exhaust_disk(victim: Target) -> Iterator[None]:
    """The disk of the runs is full."""
    for more in (victim.dice.choice([0, 4096, 2**18]), 2**20, 2**24):  # it may be written to just now
        disk = os.statvfs(victim.disk)
        if _resize_disk(victim.disk, (disk.f_blocks - disk.f_bfree) * disk.f_frsize + max(more, 4096)):
            break
    try:
        yield
    finally:
        _resize_disk(victim.disk, DISK_SIZE)


EXHAUSTED_RESOURCES = {"files": exhaust_files, "processes": exhaust_processes, "disk": exhaust_disk}


def _resize_disk(disk: Path, size: int | str) -> bool:
    """Whether a disk in memory could be made this large; it cannot be smaller than what is on it."""
    command = ["mount", "-o", f"remount,size={size}", str(disk)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def mount_disk(place: Path) -> Iterator[None]:
    """A small file system in memory, for root only."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE},mode=755", "soak", str(place)], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextmanager
def create_cgroup() -> Iterator[Path | None]:
    """A control group in which all processes of a soak are counted, where there can be one."""
    for old in PIDS.glob("soak-*"):
        if not Path("/proc", old.name.removeprefix("soak-")).exists():
            with suppress(OSError):
                old.rmdir()
    group = PIDS / f"soak-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        deadline = time.monotonic() + 5
        while group.exists() and time.monotonic() < deadline:
            with suppress(OSError):  # until its last process is gone
                group.rmdir()


def supported_kinds(group: Path | None) -> tuple[str, ...]:
    """The kinds of blows that this user can deal on this machine."""
    found = ["batch", "stop", "worker", "grader", "sandbox", "files"]
    return (*found, *(["disk"] if os.geteuid() == 0 else []), *(["processes"] if group else []))
