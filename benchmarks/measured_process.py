"""Measures work that has a process of its own: time, processor time, memory and what it writes to disk.

A supervisor adopts and waits for every descendant. Bubblewrap does not wait for the process that it starts,
so without this the usage of sandboxed scripts would be missing from the sums of the kernel.
"""

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MB = 2**20
PR_SET_CHILD_SUBREAPER = 36


def read_cpu_seconds() -> float:
    """Processor time of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


def read_written_mb() -> float:
    """What this process and the children that it has waited for caused to be written to disks."""
    return int(_read_fields("/proc/self/io")["write_bytes"]) / MB


def _read_fields(path: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in Path(path).read_text().splitlines())
    return {name: value.strip() for name, _, value in pairs}


@contextmanager
def report_usage(figures: dict[str, Any]) -> Iterator[None]:
    """Measure the block, and print the result with the figures that the block adds, as the last output."""
    ready_at, started = time.time(), time.perf_counter()
    before = {"cpu_before_s": read_cpu_seconds(), "written_before_mb": read_written_mb()}
    yield
    wall_s = time.perf_counter() - started
    memory_mb = int(_read_fields("/proc/self/status")["VmHWM"].split()[0]) / 1024
    report = {"ready_at": ready_at, "wall_s": wall_s, "memory_mb": memory_mb, **before, **figures}
    print(json.dumps(report), flush=True)


def run_measured(script: str, *arguments: object) -> dict[str, Any]:
    """Run a script that uses `report_usage`.

    Returns:
        What it reports: `start_s` until the block, `wall_s` of the block, the peak `memory_mb` of its process
        alone, and from the block to the end of the last descendant `cpu_s` and `written_mb`.
    """
    started_at = time.time()
    command = [sys.executable, __file__, sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    own, total = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    return {
        "start_s": own.pop("ready_at") - started_at,
        "cpu_s": total["cpu_s"] - own.pop("cpu_before_s"),
        "written_mb": total["written_mb"] - own.pop("written_before_mb"),
        **own,
    }


def supervise(command: list[str]) -> int:
    """Run a command, wait for all its descendants, and print their processor time and writes."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    code = subprocess.run(command).returncode
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    times = os.times()
    cpu_s = times.children_user + times.children_system
    print(json.dumps({"cpu_s": cpu_s, "written_mb": read_written_mb()}))
    return code


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))
