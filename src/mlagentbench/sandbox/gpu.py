"""GPUs inside the sandbox: the devices that were granted, and the driver's libraries, read-only."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from mlagentbench.errors import UsageError

SHARED_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")  # what every GPU of a machine needs
DRIVER_LIBRARY = "libcuda.so.1"


def granted_devices(gpu: str, devices: Path = Path("/dev")) -> list[Path]:
    """The devices behind `gpu`: nothing, `all`, or numbers with commas between them."""
    if not gpu:
        return []
    there = sorted((path for path in devices.glob("nvidia[0-9]*")), key=lambda path: int(path.name[6:]))
    wanted = there if gpu == "all" else [devices / f"nvidia{number.strip()}" for number in gpu.split(",")]
    if not wanted or not set(wanted) <= set(there):
        numbers = ", ".join(path.name[6:] for path in there)
        raise UsageError(
            f"no GPU {gpu!r} here; " + (f"there are: {numbers}, all" if there else "there is none at all")
        )
    return [*wanted, *(path for name in SHARED_DEVICES if (path := devices / name).exists())]


def engine_gpu_ids(gpu: str) -> list[str]:
    """The granted GPUs as container engines know them."""
    return ["all"] if gpu == "all" else [number.strip() for number in gpu.split(",") if number.strip()]


def gpus_from_cuda_ordinals(ordinals: Sequence[str], devices: Path = Path("/dev")) -> str:
    """`gpu` for GPUs as CUDA counts them: only those that may be opened, since containers and Slurm hide the others."""
    there = sorted(devices.glob("nvidia[0-9]*"), key=lambda path: int(path.name[6:]))
    usable = [path.name[6:] for path in there if _can_open(path)]
    if wrong := [each for each in ordinals if not each.isdigit() or int(each) >= len(usable)]:
        raise UsageError(f"no GPU {wrong[0]!r} here: {len(usable)} of {len(there)} can be opened")
    return ",".join(usable[int(each)] for each in ordinals)


def _can_open(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError:  # a control group forbids what permissions allow
        return False
    return True


def bwrap_gpu_options(gpu: str) -> Iterator[str]:
    """How bubblewrap is told to show them, over its own /dev."""
    for device in granted_devices(gpu):
        yield from ("--dev-bind", str(device), str(device))
    for folder in find_driver_folders() if gpu else ():
        yield from ("--ro-bind", folder, folder)


def gpu_environment(gpu: str) -> dict[str, str]:
    """What tells programs where the driver lies, should its folder be in no list of the system's own."""
    return {"LD_LIBRARY_PATH": ":".join(find_driver_folders())} if gpu and find_driver_folders() else {}


@cache
def find_driver_folders() -> tuple[str, ...]:
    """Folders with the driver's libraries that lie outside of what the sandbox shows anyway."""
    known = subprocess.run(
        ["ldconfig", "-p"], capture_output=True, text=True, check=False, env={"PATH": "/usr/sbin:/sbin"}
    )
    named = re.findall(rf"{re.escape(DRIVER_LIBRARY)} .*=> (/.*)", known.stdout)
    named += [
        f"{folder}/{DRIVER_LIBRARY}" for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder
    ]
    folders = (os.path.realpath(Path(path).parent) for path in named if Path(path).exists())
    return tuple(
        dict.fromkeys(folder for folder in folders if not f"{folder}/".startswith(("/usr/", "/lib/")))
    )
