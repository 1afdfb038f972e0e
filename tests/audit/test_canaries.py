"""The secrets planted by an audit are removed, however the audit ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.audit.canaries import plant_host_secrets, temporary_secret_file
from mlagentbench.system.cache import cache_dir

PLANT_CODE = """
import sys
from mlagentbench.audit.canaries import plant_host_secrets
with plant_host_secrets():
    print("planted", flush=True)
    sys.stdin.read()
"""


def planted_files(root: Path) -> set[Path]:
    """The files that audits have planted in the home and cache of the test."""
    return {*root.glob("*/.mlagentbench-audit-*"), *root.glob("*/mlagentbench-audit-*")}


@pytest.fixture
def isolated_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test its own home and cache."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_the_next_audit_removes_the_secrets_of_a_killed_audit_and_not_those_of_a_running_one(
    isolated_home: Path,
) -> None:
    command = [sys.executable, "-c", PLANT_CODE]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dead,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running,
    ):
        assert dead.stdout and running.stdout
        assert dead.stdout.readline() == running.stdout.readline() == "planted\n"
        both = planted_files(isolated_home)
        dead.kill()
        dead.wait()
        assert planted_files(isolated_home) == both and len(both) == 4
        with plant_host_secrets() as secrets:
            own = {
                secret.path for secret in secrets if secret.path and secret.path.is_relative_to(isolated_home)
            }
            assert (
                len(own) == 2
                and len(planted_files(isolated_home)) == 4
                and own < planted_files(isolated_home)
            )
        remaining = planted_files(isolated_home)
        assert len(remaining) == 2 and remaining < both
        running.communicate()
    assert planted_files(isolated_home) == set()


def test_other_files_with_a_similar_name_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "audit-link").symlink_to(tmp_path / "file")
    (tmp_path / "audit-folder").mkdir()
    (tmp_path / "audit-new").touch()  # its owner has not locked it yet
    os.mkfifo(tmp_path / "audit-pipe")
    (tmp_path / "audit-left").write_text("a secret of a dead audit")
    with temporary_secret_file("here", tmp_path / "audit-own") as secret:
        assert (tmp_path / "audit-own").read_text() == f"{secret.token}\n"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"file", "audit-link", "audit-folder", "audit-new", "audit-pipe"}


def test_an_audit_cleans_up_on_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: Path, until: Callable[[Callable[[], object]], None]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_dir().parent))  # reuse the built runtimes
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mlagentbench",
            "audit",
            str(toy),
            "--attack",
            "links",
            "--attack",
            "fork_bomb",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as harness:
        until(lambda: planted_files(tmp_path))
        harness.send_signal(signal.SIGTERM)
        errors = harness.communicate(timeout=20)[1]
    assert harness.returncode == 130, errors
    assert planted_files(tmp_path) == set()
