"""What an audit plants is taken away again, however the audit ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.audit.canaries import plant_host_secrets, temporary_secret_file
from mlagentbench.system.cache import cache_dir

PLANTING = """
import sys
from mlagentbench.audit.canaries import planted
with planted():
    print("planted", flush=True)
    sys.stdin.read()
"""


def left(root: Path) -> set[Path]:
    """What audits have planted below our own places."""
    return {*root.glob("*/.mlagentbench-audit-*"), *root.glob("*/mlagentbench-audit-*")}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a cache of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_what_a_killed_audit_left_the_next_one_removes_and_what_a_living_one_holds_stays(
    places: Path,
) -> None:
    command = [sys.executable, "-c", PLANTING]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dead,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living,
    ):
        assert dead.stdout and living.stdout
        assert dead.stdout.readline() == living.stdout.readline() == "planted\n"
        both = left(places)
        dead.kill()
        dead.wait()
        assert left(places) == both and len(both) == 4
        with plant_host_secrets() as secrets:
            own = {secret.path for secret in secrets if secret.path and secret.path.is_relative_to(places)}
            assert len(own) == 2 and len(left(places)) == 4 and own < left(places)
        kept = left(places)
        assert len(kept) == 2 and kept < both
        living.communicate()
    assert left(places) == set()


def test_nothing_else_of_that_name_is_touched(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "audit-link").symlink_to(tmp_path / "file")
    (tmp_path / "audit-folder").mkdir()
    (tmp_path / "audit-new").touch()  # whose maker has not held it yet
    os.mkfifo(tmp_path / "audit-pipe")
    (tmp_path / "audit-left").write_text("a secret of somebody dead")
    with temporary_secret_file("here", tmp_path / "audit-own") as secret:
        assert (tmp_path / "audit-own").read_text() == f"{secret.token}\n"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"file", "audit-link", "audit-folder", "audit-new", "audit-pipe"}


def test_sigterm_ends_an_audit_by_way_of_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: Path, until: Callable[[Callable[[], object]], None]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_dir().parent))  # runtimes are not built anew
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
        until(lambda: left(tmp_path))
        harness.send_signal(signal.SIGTERM)
        harness.communicate(timeout=20)
    assert harness.returncode == 130
    assert left(tmp_path) == set()
