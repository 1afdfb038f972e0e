"""Fixtures for real sandboxes around real processes; nothing is mocked."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from script_runner import SMALL, ScriptRunner, require_cleanup

from mlagentbench.runtimes.base import Runtime, ensure_runtime
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox


@pytest.fixture(scope="session")
def runtime() -> Runtime:
    return ensure_runtime("tabular", print)


@pytest.fixture
def spec(runtime: Runtime) -> Iterator[SandboxSpec]:
    """A spec whose workspace belongs to the user that the commands run as."""
    uid = choose_unprivileged_uid("tests")
    folder = Path(tempfile.mkdtemp(prefix="sandbox-test-", dir="/var/tmp"))  # on disk, not in memory
    workspace = folder / "workspace"
    workspace.mkdir()
    if uid:
        os.chown(workspace, uid, uid)
    environment = {"SEED": "7", "MARKER": secrets.token_hex(16)}
    yield SandboxSpec(workspace, runtime, SMALL, environment=environment, uid=uid)
    shutil.rmtree(folder)


@pytest.fixture
def run(spec: SandboxSpec) -> Iterator[ScriptRunner]:
    """Runs scripts in a sandbox; afterwards nothing may be left, whatever they did."""
    yield from require_cleanup(ScriptRunner(create_sandbox("bwrap"), spec, spec.workspace.parent))


@pytest.fixture
def run_unsandboxed(spec: SandboxSpec) -> Iterator[ScriptRunner]:
    """Runs scripts without a sandbox; afterwards nothing may be left, whatever they did."""
    yield from require_cleanup(ScriptRunner(create_sandbox("none"), spec, spec.workspace.parent))
