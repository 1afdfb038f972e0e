"""Measures work that has a process of its own: time, processor time, memory and what it writes to disk."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MB = 2**20


@dataclass(frozen=True)
class Usage:
    """What a process has used since it started."""

    wall_s: float
    cpu_s: float  # of itself and of all children that have ended
    memory_mb: float  # its own peak; children are not counted
    written_mb: float  # what it and its ended children caused to be written to disks

    def since(self, earlier: "Usage") -> "Usage":
        """The difference; memory stays the peak."""
        return Usage(
            self.wall_s - earlier.wall_s,
            self.cpu_s - earlier.cpu_s,
            self.memory_mb,
            self.written_mb - earlier.written_mb,
        )


def read_usage() -> Usage:
    times = os.times()
    status = _read_fields("/proc/self/status")
    cpu_s = times.user + times.system + times.children_user + times.children_system
    written = int(_read_fields("/proc/self/io")["write_bytes"])
    return Usage(time.perf_counter(), cpu_s, int(status["VmHWM"].split()[0]) / 1024, written / MB)


def _read_fields(path: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in Path(path).read_text().splitlines())
    return {name: value.strip() for name, _, value in pairs}


@contextmanager
def report_usage(figures: dict[str, Any]) -> Iterator[None]:
    """Print the usage of the block, and the figures that it adds, as the last line of the output."""
    ready_at, before = time.time(), read_usage()
    yield
    usage = read_usage().since(before)
    print(json.dumps({"ready_at": ready_at, **vars(usage), **figures}))


def run_measured(script: str, *arguments: object) -> dict[str, Any]:
    """Run a script that uses `report_usage`, and return what it reports, with the time of its start."""
    started_at = time.time()
    command = [sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"start_s": report.pop("ready_at") - started_at, **report}
