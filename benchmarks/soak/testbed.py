"""Where a soak takes place: a home and a folder for temporary files of its own, in which all leftovers are ours."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.soak.injections import create_cgroup
from benchmarks.soak.leftovers import LeftoverCheck, adopt_orphans
from benchmarks.soak.scripted_runs import TOY
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runtimes.base import ensure_runtime
from mlagentbench.system.cache import cache_dir

KEY = "OPENAI_COMPATIBLE_API_KEY"


class Testbed:
    """A home, in which the toy is ready, and how processes are started there."""

    def __init__(self, folder: Path, setup: Setup, group: Path | None) -> None:
        self.folder, self.setup, self.group = folder, setup, group
        self.home, self.temporary = folder / "home", folder / "tmp"
        self.before = LeftoverCheck(self.home, self.temporary, group)
        self.started = 0

    def start(self, *words: object, log: Path) -> "subprocess.Popen[bytes]":
        """One of our processes; what it says is kept."""
        given = ("PATH", "HOME", "PYTHONPATH", "MLAGENTBENCH_HOME")
        variables = {name: os.environ[name] for name in given if name in os.environ}
        variables |= {"TMPDIR": str(self.temporary), KEY: "soak-0123456789", "LANG": "C.UTF-8"}
        command = [sys.executable, "-m", "mlagentbench", *map(str, words)]
        self.started += 1
        with log.open("ab") as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=variables,
                start_new_session=True,
            )
        if self.group:
            with suppress(OSError):  # it is gone already
                (self.group / "cgroup.procs").write_text(str(process.pid))
        return process


@contextmanager
def open_testbed(folder: Path) -> Iterator[Testbed]:
    """Make it ready; runtimes are those of the usual home, so that nothing is built or downloaded."""
    adopt_orphans()
    runtimes = ensure_runtime("tabular", _say).folder.parent
    for place in (folder / "home", folder / "tmp"):
        place.mkdir(parents=True, exist_ok=True)
    if not (folder / "home" / "runtimes").exists():
        (folder / "home" / "runtimes").symlink_to(runtimes)
    os.environ["MLAGENTBENCH_HOME"] = str(folder / "home")
    assert cache_dir() == folder / "home"
    setup = prepare_setup(str(TOY), "open", "bwrap", _say)
    with create_cgroup() as group:
        yield Testbed(folder, setup, group)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
