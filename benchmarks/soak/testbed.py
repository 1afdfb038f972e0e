"""The isolated cache and temporary folder of a soak, so that all leftovers are its own."""

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

KEY_VARIABLE = "OPENAI_COMPATIBLE_API_KEY"


class Testbed:
    """A cache in which the toy task is prepared, and a way to start processes that use it."""

    def __init__(self, folder: Path, setup: Setup, group: Path | None) -> None:
        self.folder, self.setup, self.group = folder, setup, group
        self.home, self.temporary = folder / "home", folder / "tmp"
        self.leftover_check = LeftoverCheck(self.home, self.temporary, group)
        self.started_processes = 0

    def start(self, *args: object, log: Path) -> "subprocess.Popen[bytes]":
        """Start one `mlagentbench` process whose output goes to a log file."""
        inherited = ("PATH", "HOME", "PYTHONPATH", "MLAGENTBENCH_HOME")
        variables = {name: os.environ[name] for name in inherited if name in os.environ}
        variables |= {"TMPDIR": str(self.temporary), KEY_VARIABLE: "soak-0123456789", "LANG": "C.UTF-8"}
        command = [sys.executable, "-m", "mlagentbench", *map(str, args)]
        self.started_processes += 1
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=variables,
                start_new_session=True,
            )
        if self.group:
            with suppress(OSError):  # it has exited already
                (self.group / "cgroup.procs").write_text(str(process.pid))
        return process


@contextmanager
def open_testbed(folder: Path) -> Iterator[Testbed]:
    """Prepare the testbed; it links to the runtimes of the usual cache, so that none is built."""
    adopt_orphans()
    runtimes = ensure_runtime("tabular", _print_progress).folder.parent
    for path in (folder / "home", folder / "tmp"):
        path.mkdir(parents=True, exist_ok=True)
    if not (folder / "home" / "runtimes").exists():
        (folder / "home" / "runtimes").symlink_to(runtimes)
    os.environ["MLAGENTBENCH_HOME"] = str(folder / "home")
    assert cache_dir() == folder / "home"
    setup = prepare_setup(str(TOY), "open", "bwrap", _print_progress)
    with create_cgroup() as group:
        yield Testbed(folder, setup, group)


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
