"""Runs scripts in real sandboxes, and finds what is left of them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mlagentbench.records import Execution, Limits
from mlagentbench.sandbox.base import Sandbox, SandboxSpec
from mlagentbench.sandbox.cgroups import find_controller_folders
from mlagentbench.sandbox.launcher import STAGING_FOLDER
from mlagentbench.sandbox.output import CommandOutput

SMALL = Limits(memory_gb=0.5, disk_gb=0.05, files=2000, processes=64)


@dataclass
class ScriptResult:
    """The result of a script."""

    execution: Execution
    text: str
    limit: str | None
    exit_code: int | None


class ScriptRunner:
    """Runs scripts in a workspace; every process has the marker in its environment."""

    def __init__(self, sandbox: Sandbox, spec: SandboxSpec, folder: Path) -> None:
        self.sandbox, self.spec, self.folder = sandbox, spec, folder
        self.workspace = spec.workspace
        self.marker = spec.environment["MARKER"]

    def __call__(
        self, code: str, timeout_s: float = 30, limits: Limits = SMALL, **changes: object
    ) -> ScriptResult:
        (self.workspace / "script.py").write_text(code)
        spec = replace(self.spec, limits=limits, **changes)  # type: ignore[arg-type]
        with CommandOutput(self.folder / "output.txt") as output:
            execution = self.sandbox.run(["python", "-u", "script.py"], spec, timeout_s, output)
        return ScriptResult(execution, output.text, execution.limit, execution.exit_code)

    def survivors(self) -> list[str]:
        return find_marked_pids(self.marker)


def list_names(folder: str) -> list[str]:
    return [path.name for path in Path(folder).iterdir()]


def find_marked_pids(marker: str) -> list[str]:
    """The processes, except zombies, whose environment contains the marker."""
    pids = []
    for pid in filter(str.isdigit, list_names("/proc")):
        try:
            if marker.encode() in Path("/proc", pid, "environ").read_bytes():
                pids.append(pid)
        except OSError:
            continue
    return pids


def find_cgroups(pid: int) -> list[Path]:
    """The cgroups that a harness process has created."""
    parents = set(find_controller_folders().values())
    return [folder for parent in parents for folder in parent.glob(f"mlagentbench-*-{pid}-*-*")]


def require_cleanup(runner: ScriptRunner) -> Iterator[ScriptRunner]:
    """Yield the runner, then check that no process, cgroup, descriptor or mount is left."""
    descriptors = list_names("/proc/self/fd")
    yield runner
    runner.sandbox.release_workspace(runner.spec)
    assert runner.survivors() == []
    assert find_cgroups(os.getpid()) == []
    assert len(list_names("/proc/self/fd")) <= len(descriptors)
    mounts = Path("/proc/self/mountinfo").read_text()
    assert not [path for path in (str(STAGING_FOLDER), str(runner.folder)) if path in mounts]
    assert not STAGING_FOLDER.exists() or list_names(str(STAGING_FOLDER)) == []
