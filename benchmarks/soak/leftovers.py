"""What runs may not leave behind: processes, mounts, control groups, locks, temporary files."""

import ctypes
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from mlagentbench.sandbox.cgroups import CGROUP_PREFIX, find_controller_folders
from mlagentbench.sandbox.launcher import STAGING_FOLDER
from mlagentbench.sandbox.processes import list_process_tree, read_proc_stat
from mlagentbench.system.lock import is_locked

PR_SET_CHILD_SUBREAPER = 36
EXIT_TIMEOUT_S = 10.0  # seconds for whatever was killed to be gone


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies: then nothing that is ours can hide."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def read_cmdline(pid: int) -> str:
    """Its command line; empty for one that is gone."""
    with suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        )
    return ""


def running_descendants() -> list[int]:
    """Whatever still runs below this process; the dead among them are buried."""
    found = []
    for pid in list_process_tree(os.getpid())[1:]:
        if (read_proc_stat(pid) or "X")[0] not in "ZX":
            found.append(pid)
        else:
            with suppress(ChildProcessError):  # not ours: its parent will do it
                os.waitpid(pid, os.WNOHANG)
    return found


def _processes() -> Iterator[str]:
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    while (left := running_descendants()) and time.monotonic() < deadline:
        time.sleep(0.02)
    yield from (f"process {pid}: {read_cmdline(pid)[:200]}" for pid in left)


def find_mounts(*places: Path) -> set[str]:
    """Where something is mounted at or below these places, or where sandboxes have theirs."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4]) for line in lines]
    return {
        str(point)
        for point in points
        if any(point.is_relative_to(place) for place in (*places, STAGING_FOLDER))
    }


def abandoned_cgroups(own: Path | None = None) -> set[str]:
    """Control groups of harnesses that are no more; what is left of a dead one, the next harness sweeps away."""
    found = set()
    for place in {*find_controller_folders().values(), *([own] if own else [])}:
        for group in place.glob(f"{CGROUP_PREFIX}*-*-*-*"):
            owner = group.name.removeprefix(CGROUP_PREFIX).split("-")[1]
            if not Path("/proc", owner).exists():
                found.add(str(group))
    return found


def _locks(places: Iterable[Path]) -> Iterator[str]:
    for place in places:
        yield from (f"lock {path} is held" for path in place.rglob("*.lock") if is_locked(path))


def _files(home: Path, temporary: Path, out: Path) -> Iterator[str]:
    strays = [*temporary.iterdir(), *(home / "temporary").glob("*"), *(home / "endpoints").glob("*")]
    strays += home.glob("data/*/*.building-*")
    strays += [path for pattern in ("*.part", ".run-*", "stop") for path in out.glob(f"**/{pattern}")]
    yield from (f"file {path}" for path in strays if "workspace" not in path.parts)


class LeftoverCheck:
    """What was there before; all else that is found later is left behind."""

    def __init__(self, home: Path, temporary: Path, group: Path | None) -> None:
        self.home, self.temporary, self.group = home, temporary, group
        self._groups = abandoned_cgroups()

    def find_leftovers(self, out: Path) -> list[str]:
        """Whatever the runs in a folder have left, in words."""
        found = list(_processes())
        found += [f"mount {place}" for place in sorted(find_mounts(out, self.home))]
        found += [f"control group {group}" for group in sorted(abandoned_cgroups(self.group) - self._groups)]
        found += _locks((self.home, out))
        return [*found, *_files(self.home, self.temporary, out)]
