"""The soak's blows do what they say, and only for a moment."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from benchmarks.soak.injections import FaultInjection, Target, create_cgroup, draw_injections, mount_disk

# Tries something again and again; tells when that begins to fail, and when it works again.
TRYING = """
import os, sys
before = None
while True:
    try:
        {deed}
        now = "works"
    except OSError as error:
        now = error.strerror
    if now != before:
        print(now, flush=True)
        before = now
"""
DEEDS = {
    "files": ("os.close(os.dup(1))", "Too many open files"),
    "processes": (
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
        "Resource temporarily unavailable",
    ),
    "disk": ("open(sys.argv[1] + '/file', 'wb').write(bytes(2**23))", "No space left on device"),
}


@contextmanager
def trying(deed: str, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-c", TRYING.format(deed=deed), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("kind", DEEDS)
def test_a_resource_ends_and_comes_back(kind: str, tmp_path: Path) -> None:
    if kind != "files" and os.geteuid() != 0:
        pytest.skip("only root can do that")
    deed, error = DEEDS[kind]
    with (
        mount_disk(tmp_path) if kind == "disk" else create_cgroup() as group,
        trying(deed, str(tmp_path)) as process,
    ):
        if kind == "processes":
            if group is None:
                pytest.skip("no control group can be made")
            (group / "cgroup.procs").write_text(str(process.pid))
        assert process.stdout and process.stdout.readline() == b"works\n"
        # Some blows leave a little, which whoever tries may be content with: then it is dealt again.
        dice, said = Random(1), b""
        while error.encode() not in said:
            assert Target(process, tmp_path, group, dice).inject(FaultInjection(kind, 0, 0.0, 0.3))
            os.set_blocking(process.stdout.fileno(), False)
            said = process.stdout.read() or b""
        os.set_blocking(process.stdout.fileno(), True)
        assert said.endswith(b"works\n") or process.stdout.readline() == b"works\n"
        process.kill()
        process.wait()
    assert not group or not group.exists()


def test_the_batch_is_killed_or_asked_to_stop_and_others_only_where_there_are_any(tmp_path: Path) -> None:
    for kind, code in (("batch", -9), ("stop", -15)):
        with trying("pass") as process:
            victim = Target(process, tmp_path, None, Random(1))
            assert not any(
                victim.inject(FaultInjection(other, 0, 0.0, 0.0)) for other in ("worker", "grader", "sandbox")
            )
            assert victim.inject(FaultInjection(kind, 0, 0.0, 0.0)) == kind and process.wait(10) == code


def test_who_is_asked_to_stop_twice_is_known(tmp_path: Path) -> None:
    with trying("pass") as process:
        victim = Target(process, tmp_path, None, Random(1))
        assert [victim.inject(FaultInjection("stop", 0, 0.0, 0.0)) for _ in range(2)] == [
            "stop",
            "stop again",
        ]


def test_blows_are_drawn_by_the_seed_and_come_in_order() -> None:
    drawn = draw_injections(Random(3), ("batch", "stop"), 40)
    assert (
        drawn
        == draw_injections(Random(3), ("batch", "stop"), 40)
        != draw_injections(Random(4), ("batch", "stop"), 40)
    )
    assert [blow.after for blow in drawn] == sorted(blow.after for blow in drawn) and drawn[-1].after <= 36
