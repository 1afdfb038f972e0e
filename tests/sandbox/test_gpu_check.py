"""`make gpu-check`, as far as it can be tested without a GPU: the devices are copies of /dev/full."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gpu_check

ROOT = Path(__file__).parents[2]
PRESENT = sorted(Path("/dev").glob("nvidia[0-9]*"))
# A /dev of its own for one command, with two devices that look like GPUs.
FAKE_DEVICES = """
mkdir {folder}/dev && mount -t tmpfs none {folder}/dev && cp -a /dev/. {folder}/dev/ 2>/dev/null
mknod -m 666 {folder}/dev/nvidia0 c 1 7 && mknod -m 666 {folder}/dev/nvidia1 c 1 7
mount --rbind {folder}/dev /dev && exec {command}
"""


def run_check(*options: object) -> list[str]:
    return [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py"), *map(str, options)]


@pytest.mark.skipif(bool(PRESENT), reason="this machine has a GPU")
def test_without_a_gpu_the_check_says_so_in_one_line() -> None:
    done = subprocess.run(run_check(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "This machine has no GPU" in done.stderr


def test_processes_that_have_a_device_open_are_found(tmp_path: Path) -> None:
    device, other = tmp_path / "nvidia0", tmp_path / "nvidia1"
    device.touch()
    other.touch()
    code = f"file = open({str(device)!r}); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout and holder.stdout.readline() == "open\n"
        assert gpu_check.find_gpu_users([device]) == {holder.pid}
        assert gpu_check.find_gpu_users([other]) == set()
        holder.communicate("\n")
    assert gpu_check.find_gpu_users([device]) == set()


@pytest.mark.skipif(os.geteuid() != 0 or bool(PRESENT), reason="mounts a /dev with two devices like GPUs")
def test_only_the_granted_device_can_be_opened_inside(toy: Path, tmp_path: Path) -> None:
    """There is no driver, so that torch finds no GPU and the runs use none: these checks must fail."""
    command = shlex.join(run_check("--gpu", 1, "--task", toy, "--sandbox", "bwrap"))
    script = FAKE_DEVICES.format(folder=tmp_path, command=command)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (1, 7), done.stderr
    assert lines[0].startswith("FAIL  torch uses the granted GPU only: ")
    assert lines[1] == "ok    other GPUs are invisible: granted [1] of [0, 1], can be opened: [1]"
    assert lines[2] == "ok    without --gpu no GPU is visible: 0 visible"
    assert lines[3].startswith("FAIL  baseline on ") and "did not use the GPU" in lines[3]
    assert lines[4].startswith("FAIL  reference on ") and "score 0" in lines[4]
    assert lines[5] == "ok    nothing is left on the GPU: no process has it open"
    assert lines[6] == "3 checks failed"
