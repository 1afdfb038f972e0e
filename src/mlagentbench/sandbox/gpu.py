"""GPUs inside the sandbox: the devices that were granted, and the driver's libraries, read-only."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from mlagentbench.errors import UsageError

SHARED_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")  # needed for every GPU of a machine
DRIVER_LIBRARY = "libcuda.so.1"


def granted_devices(gpu: str, devices: Path = Path("/dev")) -> list[Path]:
    """The device files for `gpu`: "", "all", or comma-separated device numbers."""
    if not gpu:
        return []
    present = _list_gpus(devices)
    wanted = present if gpu == "all" else [devices / f"nvidia{number.strip()}" for number in gpu.split(",")]
    if not wanted or not set(wanted) <= set(present):
        numbers = [path.name[6:] for path in present]
        available = f"Available: {', '.join(numbers)}, all." if numbers else "This machine has no GPU."
        raise UsageError(f"No such GPU: {gpu!r}. {available}")
    return [*wanted, *(path for name in SHARED_DEVICES if (path := devices / name).exists())]


def engine_gpu_ids(gpu: str) -> list[str]:
    """The granted GPUs as container engines name them."""
    return ["all"] if gpu == "all" else [number.strip() for number in gpu.split(",") if number.strip()]


def gpus_from_cuda_ordinals(ordinals: Sequence[str], devices: Path = Path("/dev")) -> str:
    """Translate GPU numbers as CUDA counts them into device numbers.

    CUDA counts only GPUs that can be opened; containers and Slurm hide the others.
    """
    present = _list_gpus(devices)
    usable = [path.name[6:] for path in present if _can_open(path)]
    for ordinal in ordinals:
        if not ordinal.isdigit() or int(ordinal) >= len(usable):
            raise UsageError(f"No such GPU: {ordinal!r}. {len(usable)} of {len(present)} GPUs can be opened.")
    return ",".join(usable[int(ordinal)] for ordinal in ordinals)


def _list_gpus(devices: Path) -> list[Path]:
    return sorted(devices.glob("nvidia[0-9]*"), key=lambda path: int(path.name[6:]))


def _can_open(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError:  # a cgroup may forbid what file permissions allow
        return False
    return True


def bwrap_gpu_options(gpu: str) -> Iterator[str]:
    """The bubblewrap options that mount the granted GPUs over its own /dev."""
    for device in granted_devices(gpu):
        yield from ("--dev-bind", str(device), str(device))
    for folder in find_driver_folders() if gpu else ():
        yield from ("--ro-bind", folder, folder)


def gpu_environment(gpu: str) -> dict[str, str]:
    """The variables that programs need to find the driver if the loader does not know its folder."""
    return {"LD_LIBRARY_PATH": ":".join(find_driver_folders())} if gpu and find_driver_folders() else {}


@cache
def find_driver_folders() -> tuple[str, ...]:
    """Folders with the driver's libraries, except those that the sandbox shows anyway."""
    listing = subprocess.run(
        ["ldconfig", "-p"], capture_output=True, text=True, check=False, env={"PATH": "/usr/sbin:/sbin"}
    )
    paths = re.findall(rf"{re.escape(DRIVER_LIBRARY)} .*=> (/.*)", listing.stdout)
    search_path = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    paths += [f"{folder}/{DRIVER_LIBRARY}" for folder in search_path if folder]
    folders = [os.path.realpath(Path(path).parent) for path in paths if Path(path).exists()]
    shown = ("/usr/", "/lib/")
    return tuple(dict.fromkeys(folder for folder in folders if not f"{folder}/".startswith(shown)))
