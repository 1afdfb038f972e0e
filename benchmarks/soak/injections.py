"""The faults injected into a running batch: kills, stop requests, and resources that run out for a moment."""

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
    "grader": "mlagentbench.grading.fork_server",
}
PIDS_CGROUP = Path("/sys/fs/cgroup/pids")
DISK_SIZE = "2g"  # of the disk mounted for a round; it uses no memory until it is written to


class FaultInjection(NamedTuple):
    """A fault of some kind, injected `delay` seconds after `after` runs have ended."""

    kind: str
    after: int
    delay: float
    seconds: float  # how long a resource stays exhausted


def draw_injections(random: Random, kinds: tuple[str, ...], runs: int) -> list[FaultInjection]:
    """Draw a few injections of these kinds, spread over a batch."""
    drawn = [
        FaultInjection(
            random.choice(kinds),
            random.randrange(runs * 9 // 10 + 1),
            random.uniform(0, 0.7),
            random.uniform(0.2, 1.0),
        )
        for _ in range(random.randint(3, 6))
    ]
    return sorted(drawn, key=lambda injection: injection.after)


class Target:
    """The process of a batch, its disk, and its control group if it has one."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", disk: Path, group: Path | None, random: Random
    ) -> None:
        self.process, self.disk, self.group, self.random = process, disk, group, random
        self._stop_requested = False

    def inject(self, injection: FaultInjection) -> str:
        """Inject a fault and return what was done; empty if there was no such process.

        A second stop request ends the batch at once, so it is counted separately.
        """
        done = injection.kind
        if injection.kind == "batch":
            self.process.kill()
        elif injection.kind == "stop":
            done = "stop again" if self._stop_requested else "stop"
            self.process.terminate()
            self._stop_requested = True
        elif injection.kind in ("worker", "grader", "sandbox"):
            done = injection.kind if self._kill_one(injection.kind) else ""
        else:
            with EXHAUSTED_RESOURCES[injection.kind](self), suppress(subprocess.TimeoutExpired):
                self.process.wait(injection.seconds)
        return done

    def _kill_one(self, kind: str) -> bool:
        pids = list_process_tree(self.process.pid)[1:]
        if kind == "sandbox":
            candidates = [pid for pid in pids if _is_sandboxed(pid)]
        else:
            candidates = [pid for pid in pids if PROCESS_MODULES[kind] in read_cmdline(pid)]
        if candidates:
            with suppress(ProcessLookupError):
                os.kill(self.random.choice(candidates), signal.SIGKILL)
                return True
        return False


def _is_sandboxed(pid: int) -> bool:
    """Whether a process is part of a sandbox: in another PID namespace, or the bwrap that waits for it."""
    with suppress(OSError):
        other_namespace = Path(f"/proc/{pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
        return other_namespace or Path(f"/proc/{pid}/comm").read_text().strip() == "bwrap"
    return False


@contextmanager
def exhaust_files(target: Target) -> Iterator[None]:
    """Let the harness open no more files."""
    pid = target.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + target.random.randint(0, 8), before[1]))
        yield
    finally:
        with suppress(ProcessLookupError):  # it may have died of it
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextmanager
def exhaust_processes(target: Target) -> Iterator[None]:
    """Let the harness and its children start no process and no thread."""
    group = target.group
    assert group
    now = int((group / "pids.current").read_text())
    try:
        (group / "pids.max").write_text(str(max(now + target.random.randint(-2, 2), 0)))
        yield
    finally:
        (group / "pids.max").write_text("max")


@contextmanager
def exhaust_disk(target: Target) -> Iterator[None]:
    """Make the disk of the runs full."""
    # The disk may be written to meanwhile, so a larger size is tried if a smaller one is refused.
    for free_bytes in (target.random.choice([0, 4096, 2**18]), 2**20, 2**24):
        disk = os.statvfs(target.disk)
        used_bytes = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        if _resize_disk(target.disk, used_bytes + max(free_bytes, 4096)):
            break
    try:
        yield
    finally:
        _resize_disk(target.disk, DISK_SIZE)


EXHAUSTED_RESOURCES = {"files": exhaust_files, "processes": exhaust_processes, "disk": exhaust_disk}


def _resize_disk(disk: Path, size: int | str) -> bool:
    """Resize a tmpfs; False if it holds more than that."""
    command = ["mount", "-o", f"remount,size={size}", str(disk)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def mount_disk(folder: Path) -> Iterator[None]:
    """Mount a small tmpfs at a folder; needs root."""
    options = f"size={DISK_SIZE},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "soak", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def create_cgroup() -> Iterator[Path | None]:
    """Create a control group that counts all processes of a soak; None where that is not possible."""
    for old in PIDS_CGROUP.glob("soak-*"):
        if not Path("/proc", old.name.removeprefix("soak-")).exists():
            with suppress(OSError):
                old.rmdir()
    group = PIDS_CGROUP / f"soak-{os.getpid()}"
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
            with suppress(OSError):  # it can be removed once its last process is gone
                group.rmdir()


def supported_kinds(group: Path | None) -> tuple[str, ...]:
    """The kinds of faults that this user can inject on this machine."""
    kinds = ["batch", "stop", "worker", "grader", "sandbox", "files"]
    return (*kinds, *(["disk"] if os.geteuid() == 0 else []), *(["processes"] if group else []))
