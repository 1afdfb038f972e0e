"""Real sandboxes around real processes; nothing here is pretended."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mlagentbench.records import Execution, Limits
from mlagentbench.runtimes.base import Runtime, ensure_runtime
from mlagentbench.sandbox.base import Sandbox, SandboxSpec
from mlagentbench.sandbox.cgroups import find_controller_folders
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox

SMALL = Limits(memory_gb=0.5, disk_gb=0.05, files=2000, processes=64)


@dataclass
class Ran:
    """What came of a script."""

    execution: Execution
    text: str
    limit: str | None
    exit_code: int | None


class Runner:
    """Runs scripts of the workspace, and knows whether anything is left of them."""

    def __init__(self, sandbox: Sandbox, box: SandboxSpec, folder: Path) -> None:
        self.sandbox, self.box, self.folder = sandbox, box, folder
        self.workspace = box.workspace
        self.marker = box.environment["MARKER"]

    def __call__(self, code: str, seconds: float = 30, limits: Limits = SMALL, **changes: object) -> Ran:
        (self.workspace / "script.py").write_text(code)
        box = replace(self.box, limits=limits, **changes)  # type: ignore[arg-type]
        with CommandOutput(self.folder / "output.txt") as output:
            done = self.sandbox.run(["python", "-u", "script.py"], box, seconds, output)
        return Ran(done, output.text, done.limit, done.exit_code)

    def survivors(self) -> list[str]:
        return marked(self.marker)


def names(folder: str) -> list[str]:
    return [path.name for path in Path(folder).iterdir()]


def marked(marker: str) -> list[str]:
    """The processes, zombies aside, in whose environment the marker stands."""
    found = []
    for pid in filter(str.isdigit, names("/proc")):
        try:
            if marker.encode() in Path("/proc", pid, "environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def groups_of(pid: int) -> list[Path]:
    return [
        group
        for place in set(find_controller_folders().values())
        for group in place.glob(f"mlagentbench-*-{pid}-*-*")
    ]


@pytest.fixture(scope="session")
def runtime() -> Runtime:
    return ensure_runtime("tabular", print)


@pytest.fixture
def box(runtime: Runtime) -> Iterator[SandboxSpec]:
    """A workspace of the user as whom the commands run."""
    owner = choose_unprivileged_uid("tests")
    folder = Path(tempfile.mkdtemp(prefix="sandbox-test-", dir="/var/tmp"))  # a disk, and not memory
    workspace = folder / "workspace"
    workspace.mkdir()
    if owner:
        os.chown(workspace, owner, owner)
    yield SandboxSpec(
        workspace, runtime, SMALL, environment={"SEED": "7", "MARKER": secrets.token_hex(16)}, uid=owner
    )
    shutil.rmtree(folder)


@pytest.fixture
def run(box: SandboxSpec) -> Iterator[Runner]:
    """A script in a sandbox; afterwards nothing may be left, whatever it did."""
    yield from _checked(Runner(create_sandbox("bwrap"), box, box.workspace.parent))


@pytest.fixture
def run_unsandboxed(box: SandboxSpec) -> Iterator[Runner]:
    """A script outside any sandbox; afterwards nothing may be left, whatever it did."""
    yield from _checked(Runner(create_sandbox("none"), box, box.workspace.parent))


def _checked(runner: Runner) -> Iterator[Runner]:
    before = names("/proc/self/fd")
    yield runner
    runner.sandbox.release_workspace(runner.box)
    assert runner.survivors() == []
    assert groups_of(os.getpid()) == []
    assert len(names("/proc/self/fd")) <= len(before)
    mounts = Path("/proc/self/mountinfo").read_text()
    assert not [part for part in ("/run/mlagentbench", str(runner.folder)) if part in mounts]
    stage = Path("/run/mlagentbench")
    assert not stage.exists() or names(str(stage)) == []
