"""The checks of a soak detect everything that runs leave behind."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.soak import leftovers
from benchmarks.soak.leftovers import LeftoverCheck
from mlagentbench.sandbox.cgroups import CGROUP_PREFIX, find_controller_folders


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LeftoverCheck:
    monkeypatch.setattr(leftovers, "EXIT_TIMEOUT_S", 0.0)
    for name in ("home", "tmp", "out"):
        (tmp_path / name).mkdir()
    return LeftoverCheck(tmp_path / "home", tmp_path / "tmp", None)


def leftovers_except_processes(check: LeftoverCheck, out: Path) -> list[str]:
    """All leftovers but processes: the process that runs these tests may have other children."""
    return [leftover for leftover in check.find_leftovers(out) if not leftover.startswith("process ")]


def test_nothing_is_found_if_nothing_is_left(check: LeftoverCheck, tmp_path: Path) -> None:
    (tmp_path / "out" / "run.lock").touch()
    assert leftovers_except_processes(check, tmp_path / "out") == []


def test_a_process_is_found_and_so_is_a_grandchild(check: LeftoverCheck, tmp_path: Path) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1001; true"]) as child:
        try:
            found = [left for left in check.find_leftovers(tmp_path / "out") if "sleep 1001" in left]
            assert found and found[0].startswith(f"process {child.pid}: sh -c")
        finally:
            subprocess.run(["pkill", "-P", str(child.pid)], check=False)
            child.kill()


def test_temporary_files_and_half_written_ones_are_found(check: LeftoverCheck, tmp_path: Path) -> None:
    (tmp_path / "home" / "temporary").mkdir()
    (tmp_path / "out" / "run").mkdir()
    strays = ["home/temporary/0123.held", "tmp/stray", "out/run/result.json.part", "out/run/.run-7.json"]
    for stray in strays:
        (tmp_path / stray).touch()
    assert leftovers_except_processes(check, tmp_path / "out") == [
        f"file {tmp_path / stray}" for stray in (strays[1], strays[0], *strays[2:])
    ]


def test_a_held_lock_is_found(check: LeftoverCheck, tmp_path: Path) -> None:
    path = tmp_path / "out" / "run.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert leftovers_except_processes(check, tmp_path / "out") == [f"lock {path} is held"]


def test_a_control_group_of_a_dead_harness_is_found(check: LeftoverCheck, tmp_path: Path) -> None:
    if not find_controller_folders():
        pytest.skip("this machine has no control groups")
    dead = subprocess.Popen(["true"])
    dead.wait()
    group = (
        find_controller_folders()["pids"] / f"{CGROUP_PREFIX}1.1-{dead.pid}-2-3"
    )  # of another boot: no harness removes it here
    group.mkdir()
    try:
        assert f"control group {group}" in leftovers_except_processes(check, tmp_path / "out")
    finally:
        group.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_mount_is_found(check: LeftoverCheck, tmp_path: Path) -> None:
    mount_point = tmp_path / "out" / "disk"
    mount_point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(mount_point)], check=True)
    try:
        assert leftovers_except_processes(check, tmp_path / "out") == [f"mount {mount_point}"]
    finally:
        subprocess.run(["umount", str(mount_point)], check=True)
