"""The faults that a soak injects have the intended effect, and only for a moment."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest

from benchmarks.soak.injections import (
    PROCESS_MODULES,
    FaultInjection,
    Target,
    create_cgroup,
    draw_injections,
    mount_disk,
)

# Repeats an operation; prints when it starts to fail, and when it works again.
PROBE_CODE = """
import os, sys
before = None
while True:
    try:
        {operation}
        now = "works"
    except OSError as error:
        now = error.strerror
    if now != before:
        print(now, flush=True)
        before = now
"""
OPERATIONS = {
    "files": ("os.close(os.dup(1))", "Too many open files"),
    "processes": (
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
        "Resource temporarily unavailable",
    ),
    "disk": ("open(sys.argv[1] + '/file', 'wb').write(bytes(2**23))", "No space left on device"),
}


class LowestLimits(Random):
    """Draws the lowest limit, at which an operation fails soonest."""

    def randint(self, a: int, b: int) -> int:
        return min(a, b)


@contextmanager
def repeating(operation: str, *args: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-c", PROBE_CODE.format(operation=operation), *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("kind", OPERATIONS)
def test_a_resource_is_exhausted_for_a_moment(kind: str, tmp_path: Path) -> None:
    if kind != "files" and os.geteuid() != 0:
        pytest.skip("needs root")
    operation, error = OPERATIONS[kind]
    with (
        mount_disk(tmp_path) if kind == "disk" else create_cgroup() as group,
        repeating(operation, str(tmp_path)) as process,
    ):
        if kind == "processes":
            if group is None:
                pytest.skip("no control group can be created")
            (group / "cgroup.procs").write_text(str(process.pid))
        assert process.stdout and process.stdout.readline() == b"works\n"
        # An injection may leave enough for the operation to succeed; then it is repeated.
        random, output = LowestLimits(1), b""
        while error.encode() not in output:
            assert Target(process, tmp_path, group, random).inject(FaultInjection(kind, 0, 0.0, 0.3))
            os.set_blocking(process.stdout.fileno(), False)
            output = process.stdout.read() or b""
        os.set_blocking(process.stdout.fileno(), True)
        if not output.endswith(b"\n"):  # the last line was read in the middle
            output += process.stdout.readline()
        assert output.endswith(b"works\n") or process.stdout.readline() == b"works\n"
        process.kill()
        process.wait()
    assert not group or not group.exists()


def test_the_batch_is_killed_or_stopped_and_other_processes_only_if_they_exist(tmp_path: Path) -> None:
    for kind, code in (("batch", -9), ("stop", -15)):
        with repeating("pass") as process:
            target = Target(process, tmp_path, None, Random(1))
            assert not any(
                target.inject(FaultInjection(other, 0, 0.0, 0.0)) for other in ("worker", "grader", "sandbox")
            )
            assert target.inject(FaultInjection(kind, 0, 0.0, 0.0)) == kind and process.wait(10) == code


def test_a_second_stop_request_is_counted_separately(tmp_path: Path) -> None:
    with repeating("pass") as process:
        target = Target(process, tmp_path, None, Random(1))
        assert [target.inject(FaultInjection("stop", 0, 0.0, 0.0)) for _ in range(2)] == [
            "stop",
            "stop again",
        ]


def test_injections_are_drawn_from_the_seed_and_sorted() -> None:
    drawn = draw_injections(Random(3), ("batch", "stop"), 40)
    assert (
        drawn
        == draw_injections(Random(3), ("batch", "stop"), 40)
        != draw_injections(Random(4), ("batch", "stop"), 40)
    )
    assert [injection.after for injection in drawn] == sorted(
        injection.after for injection in drawn
    ) and drawn[-1].after <= 36


def test_the_modules_of_the_processes_that_are_killed_exist() -> None:
    assert all(find_spec(module) for module in PROCESS_MODULES.values())
