from pathlib import Path

import pytest

from mlagentbench.errors import UsageError
from mlagentbench.sandbox.gpu import gpus_from_cuda_ordinals, granted_devices

HERE = sorted(Path("/dev").glob("nvidia[0-9]*"))


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "null"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("gpu", "numbers"), [("0", [0]), ("1", [1]), ("0,10", [0, 10]), ("10, 1", [10, 1]), ("all", [0, 1, 10])]
)
def test_only_what_was_asked_for_is_granted_with_what_all_share(
    devices: Path, gpu: str, numbers: list[int]
) -> None:
    names = [f"nvidia{number}" for number in numbers]
    assert granted_devices(gpu, devices) == [devices / name for name in (*names, "nvidiactl", "nvidia-uvm")]


def test_without_asking_nothing_is_granted(devices: Path) -> None:
    assert granted_devices("", devices) == []


@pytest.mark.parametrize("gpu", ["2", "0,2", "ctl", "-uvm", "/../null", "first", ","])
def test_a_gpu_that_is_not_there_is_a_sentence(devices: Path, gpu: str) -> None:
    with pytest.raises(UsageError, match=r"No such GPU: .*\. Available: 0, 1, 10, all\."):
        granted_devices(gpu, devices)


def test_a_machine_without_any_says_so(tmp_path: Path) -> None:
    for gpu in ("0", "all"):
        with pytest.raises(UsageError, match="This machine has no GPU"):
            granted_devices(gpu, tmp_path)


@pytest.mark.skipif(bool(HERE), reason="this machine has a GPU")
def test_a_run_that_asks_for_a_missing_gpu_ends_before_it_begins(cli, toy: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = cli("run", toy, "--agent", "nothing", "--gpu", "0", "--out", tmp_path / "run")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "No such GPU: '0'" in done.stderr and not (tmp_path / "run" / "run.json").exists()


def test_gpus_that_cannot_be_opened_do_not_count(devices: Path) -> None:
    (devices / "nvidia0").unlink()
    (devices / "nvidia0").mkdir()  # which cannot be opened for writing, not even by root
    assert (
        gpus_from_cuda_ordinals(["0"], devices) == "1"
        and gpus_from_cuda_ordinals(["1", "0"], devices) == "10,1"
        and gpus_from_cuda_ordinals([], devices) == ""
    )
    for ordinal in ("2", "GPU-0a1b", ""):
        with pytest.raises(UsageError, match="2 of 3 GPUs can be opened"):
            gpus_from_cuda_ordinals([ordinal], devices)
