"""Finds what runs must not leave behind: processes, mounts, control groups, locks, temporary files."""

import ctypes
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from mlagentbench.sandbox.cgroups import CGROUP_PREFIX, find_controller_folders
from mlagentbench.sandbox.launcher import STAGING_FOLDER
from mlagentbench.sandbox.processes import list_process_tree, read_proc_stat
from mlagentbench.system.atomic_write import PARTIAL_SUFFIX
from mlagentbench.system.lock import is_locked
from mlagentbench.system.stop_token import STOP_FILE

PR_SET_CHILD_SUBREAPER = 36
EXIT_TIMEOUT_S = 10.0  # for killed processes to disappear


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parent dies, so that no process can be missed."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def read_cmdline(pid: int) -> str:
    """Read the command line of a process; empty if it is gone."""
    with suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        )
    return ""


def running_descendants() -> list[int]:
    """The running descendants of this process; dead ones are reaped."""
    running = []
    for pid in list_process_tree(os.getpid())[1:]:
        if (read_proc_stat(pid) or "X")[0] not in "ZX":
            running.append(pid)
        else:
            with suppress(ChildProcessError):  # not our child: its parent will reap it
                os.waitpid(pid, os.WNOHANG)
    return running


def _describe_processes() -> Iterator[str]:
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    while (left := running_descendants()) and time.monotonic() < deadline:
        time.sleep(0.02)
    yield from (f"process {pid}: {read_cmdline(pid)[:200]}" for pid in left)


def find_mounts(*folders: Path) -> set[str]:
    """The mount points at or below these folders, or below the folder of the sandboxes."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4]) for line in lines]
    roots = (*folders, STAGING_FOLDER)
    return {str(point) for point in points if any(point.is_relative_to(root) for root in roots)}


def abandoned_cgroups(own: Path | None = None) -> set[str]:
    """The control groups of dead harnesses, which the next harness should have removed."""
    abandoned = set()
    for hierarchy in {*find_controller_folders().values(), *([own] if own else [])}:
        for group in hierarchy.glob(f"{CGROUP_PREFIX}*-*-*-*"):
            owner = group.name.removeprefix(CGROUP_PREFIX).split("-")[1]
            if not Path("/proc", owner).exists():
                abandoned.add(str(group))
    return abandoned


def _describe_locks(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        yield from (f"lock {path} is held" for path in folder.rglob("*.lock") if is_locked(path))


def _describe_files(home: Path, temporary: Path, out: Path) -> Iterator[str]:
    strays = [*temporary.iterdir(), *(home / "temporary").glob("*")]
    strays += home.glob("data/*/*.building-*")
    for pattern in (f"*{PARTIAL_SUFFIX}", ".run-*", STOP_FILE):
        strays += out.glob(f"**/{pattern}")
    yield from (f"file {path}" for path in strays if "workspace" not in path.parts)


class LeftoverCheck:
    """Remembers what exists now; what is found later in addition was left behind."""

    def __init__(self, home: Path, temporary: Path, group: Path | None) -> None:
        self.home, self.temporary, self.group = home, temporary, group
        self._groups = abandoned_cgroups()

    def find_leftovers(self, out: Path) -> list[str]:
        """Describe everything that the runs in a folder have left behind."""
        leftovers = list(_describe_processes())
        leftovers += [f"mount {point}" for point in sorted(find_mounts(out, self.home))]
        leftovers += [
            f"control group {group}" for group in sorted(abandoned_cgroups(self.group) - self._groups)
        ]
        leftovers += _describe_locks((self.home, out))
        return [*leftovers, *_describe_files(self.home, self.temporary, out)]
