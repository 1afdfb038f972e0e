"""A harness that may open no more files fails, and leaves nothing behind when it may again."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mlagentbench.errors import SandboxFault
from mlagentbench.home import scratch
from mlagentbench.records import Limits
from mlagentbench.runner.batch.standing import Follower
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import start
from mlagentbench.sandbox.base import Box
from mlagentbench.sandbox.cgroups import hierarchies
from mlagentbench.sandbox.choose import unprivileged_user
from mlagentbench.sandbox.output import Output


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@contextmanager
def files_left(count: int) -> Iterator[None]:
    """Only so many more can be opened."""
    before, held = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    most = max(map(int, open_files())) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most + count, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in held:
            os.close(fd)


def groups() -> list[Path]:
    mine = f"mlagentbench-*-{os.getpid()}-*-*"
    return [group for place in set(hierarchies().values()) for group in place.glob(mine)]


def test_a_sandbox_that_cannot_begin_leaves_no_file_open_and_no_control_group(setup: Setup, tmp_path: Path) -> None:
    owner = unprivileged_user("scarcity")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "script.py").write_text("print('ran')")
    box = Box(tmp_path / "workspace", setup.runtime, Limits(memory_gb=0.5), owner=owner)

    def run() -> str:
        with Output() as output:
            setup.sandbox.run(["python", "script.py"], box, 30, output)
        return output.text

    assert run() == "ran\n"
    before, failed, count = (open_files(), groups()), 0, 0
    while True:
        with files_left(count):
            try:
                said = run()
            except (SandboxFault, OSError):
                said = ""
        assert (open_files(), groups()) == before, f"with {count} files to open"
        if said == "ran\n":
            break
        failed, count = failed + 1, count + 1
    assert failed > 3, "it must have failed at several moments"


def test_a_result_that_cannot_be_read_just_now_is_not_taken_for_a_damaged_one(setup: Setup, tmp_path: Path) -> None:
    place = tmp_path / "run"
    start(setup, "nothing", place)
    follower = Follower(place)
    with files_left(0):
        assert follower.look().state == "queued"
    assert follower.look().state == "finished"
    (place / "result.json").write_text("{")
    assert follower.look().note == "result.json is damaged"


def test_a_temporary_folder_that_could_not_be_removed_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path))
    with scratch() as folder:
        (folder / "file").touch()
        starved = files_left(0)
        starved.__enter__()
    starved.__exit__(None, None, None)
    assert folder.is_dir()
    with scratch():
        assert not folder.exists()
    assert list((tmp_path / "temporary").iterdir()) == []
