"""A harness that may open no more files fails, and leaves nothing behind when it may again."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mlagentbench.errors import SandboxFault
from mlagentbench.records import Limits
from mlagentbench.runner.batch.run_status import RunFollower
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import start_run
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.cgroups import find_controller_folders
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.selection import choose_unprivileged_uid
from mlagentbench.system.cache import temporary_dir


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
    return [group for place in set(find_controller_folders().values()) for group in place.glob(mine)]


def test_a_sandbox_that_cannot_begin_leaves_no_file_open_and_no_control_group(
    setup: Setup, tmp_path: Path
) -> None:
    owner = choose_unprivileged_uid("scarcity")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "script.py").write_text("print('ran')")
    box = SandboxSpec(tmp_path / "workspace", setup.runtime, Limits(memory_gb=0.5), uid=owner)

    def run() -> str:
        with CommandOutput() as output:
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


def test_a_result_that_cannot_be_read_just_now_is_not_taken_for_a_damaged_one(
    setup: Setup, tmp_path: Path
) -> None:
    place = tmp_path / "run"
    start_run(setup, "nothing", place)
    follower = RunFollower(place)
    with files_left(0):
        assert follower.refresh().state == "queued"
    assert follower.refresh().state == "finished"
    (place / "result.json").write_text("{")
    assert follower.refresh().note == "result.json is damaged"


def test_a_temporary_folder_that_could_not_be_removed_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path))
    with temporary_dir() as folder:
        (folder / "file").touch()
        starved = files_left(0)
        starved.__enter__()
    starved.__exit__(None, None, None)
    assert folder.is_dir()
    with temporary_dir():
        assert not folder.exists()
    assert list((tmp_path / "temporary").iterdir()) == []
