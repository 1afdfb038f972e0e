"""A harness that runs out of file descriptors fails cleanly and leaves nothing behind."""

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
def limit_open_files(count: int) -> Iterator[None]:
    """Let this process open only `count` more files."""
    before, opened = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    highest = max(map(int, open_files())) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, before[1]))
    try:
        with suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + count, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in opened:
            os.close(fd)


def own_cgroups() -> list[Path]:
    mine = f"mlagentbench-*-{os.getpid()}-*-*"
    return [group for folder in set(find_controller_folders().values()) for group in folder.glob(mine)]


def test_a_sandbox_that_cannot_start_leaves_no_open_file_and_no_control_group(
    setup: Setup, tmp_path: Path
) -> None:
    uid = choose_unprivileged_uid("open-file-limit")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "script.py").write_text("print('ran')")
    spec = SandboxSpec(tmp_path / "workspace", setup.runtime, Limits(memory_gb=0.5), uid=uid)

    def run() -> str:
        with CommandOutput() as output:
            setup.sandbox.run(["python", "script.py"], spec, 30, output)
        return output.text

    assert run() == "ran\n"
    before, failed, count = (open_files(), own_cgroups()), 0, 0
    while True:
        with limit_open_files(count):
            try:
                output_text = run()
            except (SandboxFault, OSError):
                output_text = ""
        assert (open_files(), own_cgroups()) == before, f"with {count} files to open"
        if output_text == "ran\n":
            break
        failed, count = failed + 1, count + 1
    assert failed > 3, "it must have failed at several points"


def test_a_result_that_cannot_be_read_at_the_moment_is_not_reported_as_damaged(
    setup: Setup, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    start_run(setup, "nothing", folder)
    follower = RunFollower(folder)
    with limit_open_files(0):
        assert follower.refresh().state == "queued"
    assert follower.refresh().state == "finished"
    (folder / "result.json").write_text("{")
    assert follower.refresh().note == "result.json is damaged"


def test_a_temporary_folder_that_could_not_be_removed_is_removed_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path))
    with temporary_dir() as folder:
        (folder / "file").touch()
        limited = limit_open_files(0)
        limited.__enter__()
    limited.__exit__(None, None, None)
    assert folder.is_dir()
    with temporary_dir():
        assert not folder.exists()
    assert list((tmp_path / "temporary").iterdir()) == []
