"""The soak sees whatever is left behind."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.soak import leftovers
from benchmarks.soak.leftovers import LeftoverCheck
from mlagentbench.sandbox.cgroups import CGROUP_PREFIX, find_controller_folders


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LeftoverCheck:
    monkeypatch.setattr(leftovers, "DYING", 0.0)
    for name in ("home", "tmp", "out"):
        (tmp_path / name).mkdir()
    return LeftoverCheck(tmp_path / "home", tmp_path / "tmp", None)


def others(before: LeftoverCheck, out: Path) -> list[str]:
    """But for processes: whoever runs these tests may have some."""
    return [each for each in before.find_leftovers(out) if not each.startswith("process ")]


def test_where_nothing_is_left_nothing_is_found(before: LeftoverCheck, tmp_path: Path) -> None:
    (tmp_path / "out" / "run.lock").touch()
    assert others(before, tmp_path / "out") == []


def test_a_process_is_found_and_so_is_a_grandchild(before: LeftoverCheck, tmp_path: Path) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1001; true"]) as child:
        try:
            found = [each for each in before.find_leftovers(tmp_path / "out") if "sleep 1001" in each]
            assert found and found[0].startswith(f"process {child.pid}: sh -c")
        finally:
            subprocess.run(["pkill", "-P", str(child.pid)], check=False)
            child.kill()


def test_temporary_files_and_half_written_ones_are_found(before: LeftoverCheck, tmp_path: Path) -> None:
    (tmp_path / "home" / "temporary").mkdir()
    (tmp_path / "out" / "run").mkdir()
    strays = ["home/temporary/0123.held", "tmp/stray", "out/run/result.json.part", "out/run/.run-7.json"]
    for stray in strays:
        (tmp_path / stray).touch()
    assert others(before, tmp_path / "out") == [
        f"file {tmp_path / stray}" for stray in (strays[1], strays[0], *strays[2:])
    ]


def test_a_lock_that_is_held_is_found(before: LeftoverCheck, tmp_path: Path) -> None:
    path = tmp_path / "out" / "run.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert others(before, tmp_path / "out") == [f"lock {path} is held"]


def test_a_control_group_of_a_dead_harness_is_found(before: LeftoverCheck, tmp_path: Path) -> None:
    if not find_controller_folders():
        pytest.skip("no control groups here")
    dead = subprocess.Popen(["true"])
    dead.wait()
    group = (
        find_controller_folders()["pids"] / f"{CGROUP_PREFIX}1.1-{dead.pid}-2-3"
    )  # of another world: no harness here sweeps it
    group.mkdir()
    try:
        assert f"control group {group}" in others(before, tmp_path / "out")
    finally:
        group.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_mount_is_found(before: LeftoverCheck, tmp_path: Path) -> None:
    place = tmp_path / "out" / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(place)], check=True)
    try:
        assert others(before, tmp_path / "out") == [f"mount {place}"]
    finally:
        subprocess.run(["umount", str(place)], check=True)
