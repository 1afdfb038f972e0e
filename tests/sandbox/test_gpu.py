from pathlib import Path

import pytest

from mlagentbench.errors import UsageError
from mlagentbench.sandbox.gpu import gpus_from_cuda_ordinals, granted_devices

PRESENT = sorted(Path("/dev").glob("nvidia[0-9]*"))


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "null"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("gpu", "numbers"), [("0", [0]), ("1", [1]), ("0,10", [0, 10]), ("10, 1", [10, 1]), ("all", [0, 1, 10])]
)
def test_only_the_requested_gpus_and_the_shared_devices_are_granted(
    devices: Path, gpu: str, numbers: list[int]
) -> None:
    names = [f"nvidia{number}" for number in numbers]
    assert granted_devices(gpu, devices) == [devices / name for name in (*names, "nvidiactl", "nvidia-uvm")]


def test_without_a_request_no_device_is_granted(devices: Path) -> None:
    assert granted_devices("", devices) == []


@pytest.mark.parametrize("gpu", ["2", "0,2", "ctl", "-uvm", "/../null", "first", ","])
def test_a_missing_gpu_is_a_usage_error(devices: Path, gpu: str) -> None:
    with pytest.raises(UsageError, match=r"No such GPU: .*\. Available: 0, 1, 10, all\."):
        granted_devices(gpu, devices)


def test_the_message_says_if_the_machine_has_no_gpu(tmp_path: Path) -> None:
    for gpu in ("0", "all"):
        with pytest.raises(UsageError, match="This machine has no GPU"):
            granted_devices(gpu, tmp_path)


@pytest.mark.skipif(bool(PRESENT), reason="this machine has a GPU")
def test_a_run_that_requests_a_missing_gpu_does_not_start(cli, toy: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    completed = cli("run", toy, "--agent", "nothing", "--gpu", "0", "--out", tmp_path / "run")
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)
    assert "No such GPU: '0'" in completed.stderr and not (tmp_path / "run" / "run.json").exists()


def test_gpus_that_cannot_be_opened_are_not_counted(devices: Path) -> None:
    (devices / "nvidia0").unlink()
    (devices / "nvidia0").mkdir()  # cannot be opened for writing, not even by root
    assert (
        gpus_from_cuda_ordinals(["0"], devices) == "1"
        and gpus_from_cuda_ordinals(["1", "0"], devices) == "10,1"
        and gpus_from_cuda_ordinals([], devices) == ""
    )
    for ordinal in ("2", "GPU-0a1b", ""):
        with pytest.raises(UsageError, match="2 of 3 GPUs can be opened"):
            gpus_from_cuda_ordinals([ordinal], devices)
