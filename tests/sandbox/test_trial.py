"""One real command is tried before a run, and every cause of a failure has a remedy."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.sandbox import trial
from mlagentbench.sandbox.landlock.kernel import landlock_version
from mlagentbench.sandbox.selection import create_sandbox

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")


@pytest.fixture
def broken_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which bubblewrap cannot create namespaces, and on which nothing was tried before."""
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    for path in (program, program.parent):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    forget_trials()


def forget_trials() -> None:
    trial.require_working.cache_clear()
    trial.choose_sandbox_name.cache_clear()


@pytest.fixture(autouse=True)
def _forget_afterwards():  # type: ignore[no-untyped-def]
    yield
    forget_trials()


@pytest.mark.parametrize("name", ["bwrap", pytest.param("landlock", marks=needs_landlock)])
def test_a_sandbox_can_be_tried_without_a_runtime(name: str) -> None:
    assert trial.try_sandbox(create_sandbox(name)) < 10


def test_auto_takes_bubblewrap_where_it_works() -> None:
    assert create_sandbox("auto").name == "bwrap"


@needs_landlock
@pytest.mark.usefixtures("broken_bwrap")
def test_auto_takes_landlock_where_bubblewrap_does_not_work() -> None:
    assert create_sandbox("auto").name == "landlock"


@needs_landlock
def test_auto_takes_landlock_where_root_has_no_other_users(tmp_path: Path) -> None:
    """As in a container that maps one user."""
    code = "from mlagentbench.sandbox.trial import choose_sandbox_name; print(choose_sandbox_name(''))"
    in_namespace = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", code],
        env={**os.environ, "MLAGENTBENCH_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert in_namespace.stdout == "landlock\n", in_namespace.stderr


@pytest.mark.usefixtures("broken_bwrap")
def test_auto_never_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlagentbench.sandbox.landlock.sandbox.landlock_version", lambda: 0)
    with pytest.raises(UsageError, match=r"No sandbox works on this machine\..*namespace.*no Landlock"):
        create_sandbox("auto")


@pytest.mark.usefixtures("broken_bwrap")
def test_a_broken_sandbox_ends_a_run_before_its_first_step(cli: Cli, toy: Path, tmp_path: Path) -> None:
    ended = cli("run", toy, "--agent", "baseline", "--sandbox", "bwrap", "--out", tmp_path / "run")
    assert ended.returncode == 2
    assert "--sandbox bwrap does not work on this machine" in ended.stderr
    assert not (tmp_path / "run").exists()


@needs_landlock
@pytest.mark.usefixtures("broken_bwrap")
def test_a_whole_run_under_landlock_says_what_it_cannot_isolate(cli: Cli, toy: Path, tmp_path: Path) -> None:
    ended = cli("run", toy, "--agent", "reference", "--out", tmp_path / "run", "--json")
    assert ended.returncode == 0, ended.stderr
    assert "Sandbox: landlock, because bwrap does not work here" in ended.stderr
    assert json.loads(ended.stdout)["unsandboxed"] is False
    spec = json.loads((tmp_path / "run" / "run.json").read_text())
    assert spec["sandbox"] == "landlock"
    assert any("no network namespace" in text for text in spec["sandbox_limitations"])


def test_a_command_that_fails_inside_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TRIAL_COMMAND", ("sh", "-c", "echo broken; exit 3"))
    with pytest.raises(SandboxFault, match="Python cannot start inside: broken"):
        trial.try_sandbox(create_sandbox("bwrap"))


@pytest.mark.parametrize(
    ("reason", "files", "remedy"),
    [
        ("bubblewrap is not installed", {}, "without sudo: apt-get download bubblewrap"),
        ("root: a sandbox needs the uid of an unprivileged user", {}, "as an ordinary user"),
        ("crun: cgroups in hybrid mode not supported", {}, 'runtime = "runc"'),
        ("bwrap: Can't mount proc on /newroot/proc", {}, "systempaths=unconfined"),
        (
            "bwrap: setting up uid map: Permission denied",
            {"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"},
            "/etc/apparmor.d/bwrap",
        ),
        (
            "bwrap: No permissions to create new namespace",
            {"proc/sys/kernel/unprivileged_userns_clone": "0\n"},
            "sudo sysctl kernel.unprivileged_userns_clone=1",
        ),
        (
            "bwrap: Creating new namespace failed: No space left on device",
            {"proc/sys/user/max_user_namespaces": "0\n"},
            "sudo sysctl user.max_user_namespaces=15000",
        ),
        ("bwrap: No permissions to create new namespace", {".dockerenv": ""}, "seccomp=unconfined"),
        ("bwrap: No permissions to create new namespace", {}, "--sandbox landlock"),
    ],
)
def test_every_cause_has_a_remedy(reason: str, files: dict[str, str], remedy: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert remedy in trial.find_remedy(reason, tmp_path)


def test_a_full_disk_is_not_taken_for_a_broken_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlagentbench.sandbox.limit_monitor._free_disk_bytes", lambda folder: 0)
    trial.choose_sandbox_name.cache_clear()
    trial.require_working.cache_clear()
    for name in ("auto", "bwrap"):
        with pytest.raises(UsageError, match=r"^Less than 1 GB is free .* or set MLAGENTBENCH_HOME"):
            trial.choose_sandbox_name("") if name == "auto" else trial.require_working(name, "")


def test_other_failures_have_no_remedy(tmp_path: Path) -> None:
    (tmp_path / ".dockerenv").touch()
    assert trial.find_remedy("[Errno 28] No space left on device", tmp_path) == ""
    assert trial.find_remedy("execvp: argument list too long", tmp_path) == ""
