"""The hardware of this machine, as far as it matters to timings."""

import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

from mlagentbench.records import Hardware


@cache
def detect_hardware() -> Hardware:
    """CPU, cores, memory, GPUs and Python of this machine."""
    return Hardware(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        gpu="; ".join(list_gpus()),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
    )


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine()
    )


def list_gpus() -> list[str]:
    """The names of this machine's NVIDIA GPUs."""
    if not shutil.which("nvidia-smi"):
        return []
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return completed.stdout.strip().splitlines() if completed.returncode == 0 else []
