"""Starting sandboxes: from any thread, many at once, after a fork; and sweeping up after those who could not."""

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SMALL, Runner, marked

from mlagentbench.errors import SandboxFault
from mlagentbench.sandbox import handshake
from mlagentbench.sandbox.cgroups import Cgroup, find_controller_folders
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.repl import Repl

HARNESS = Path(__file__).parent / "harness.py"
grouped = pytest.mark.skipif(not find_controller_folders(), reason="no control groups here")


def test_a_sandbox_outlives_the_thread_that_asked_for_it(run: Runner) -> None:
    found: list[Repl] = []
    asking = threading.Thread(target=lambda: found.append(Repl(run.sandbox, run.box)))
    asking.start()
    asking.join()
    try:
        output = CommandOutput()
        assert found[0].run("6 * 7", 20, output) is None
        assert output.text.strip() == "42"
    finally:
        found[0].close()


def test_a_sandbox_killed_on_its_way_to_the_gate_is_a_fault_at_once_and_its_children_go_with_it(
    until: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, group = secrets.token_hex(16), Cgroup(2**30, 64)
    monkeypatch.setattr(handshake, "START_TIMEOUT_S", 15)
    dies = [
        "/bin/sh",
        "-c",
        "sleep 1000 & kill -9 $$",
    ]  # as bwrap does when it is killed before it made its namespaces
    began = time.monotonic()
    try:
        with pytest.raises(SandboxFault, match="no output"):
            handshake.start_child(dies, SMALL, group, {"PATH": os.environ["PATH"], "MARKER": marker}, "/")
        assert time.monotonic() - began < handshake.START_TIMEOUT_S
        until(lambda: not marked(marker))
    finally:
        group.close()


def test_many_threads_start_sandboxes_at_once(run: Runner) -> None:
    (run.workspace / "script.py").write_text("import sys; print(sys.argv[1])")

    def one(number: int) -> str:
        output = CommandOutput()
        argv = ["python", "-S", "script.py", str(number)]
        assert run.sandbox.run(argv, run.box, 60, output).exit_code == 0
        return output.text.strip()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(16))) == [str(number) for number in range(16)]


def test_a_fork_of_the_harness_starts_sandboxes_of_its_own(run: Runner) -> None:
    assert run("print(1)").exit_code == 0
    child = os.fork()
    if child == 0:
        try:
            run("open('forked', 'w')")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (run.workspace / "forked").exists()


def test_a_workspace_made_again_under_the_same_name_is_the_one_that_is_shown(run: Runner) -> None:
    assert run("open('old', 'w')").exit_code == 0
    run.workspace.rename(run.folder / "before")
    run.workspace.mkdir()
    os.chown(run.workspace, *(run.folder / "before").stat()[4:6])
    assert run("import os; print(os.listdir('.'))").text.strip() == "['script.py']"


def test_more_read_only_files_than_can_be_mounted_are_a_fault_with_a_reason(run: Runner) -> None:
    (run.workspace / "f").touch()
    with pytest.raises(SandboxFault, match="maximum number of arguments"):
        run.sandbox.start(["true"], replace(run.box, read_only_paths=("f",) * 4000))


@grouped
def test_groups_of_an_earlier_process_with_our_number_are_swept_and_ours_are_not(run: Runner) -> None:
    ours = Cgroup(2**30, 10)
    name, world, number, _, _ = next(iter(ours.folders.values())).name.split("-")
    stale = [place / f"{name}-{world}-{number}-1-7" for place in set(find_controller_folders().values())]
    stranger = [place / f"{name}-1.1-{number}-1-7" for place in set(find_controller_folders().values())]
    try:
        for group in (*stale, *stranger):
            group.mkdir()
        (run.workspace / "script.py").write_text("print(1)")
        subprocess.run(
            [sys.executable, str(HARNESS), "bwrap", str(run.workspace), run.marker, "20"],
            check=True,
            capture_output=True,
        )
        assert not [group for group in stale if group.exists()]
        assert all(folder.exists() for folder in (*ours.folders.values(), *stranger))
    finally:
        ours.close()
        for group in stranger:
            group.rmdir()


@grouped
def test_a_group_that_cannot_be_joined_is_a_fault_and_no_start_without_limits(run: Runner) -> None:
    group = Cgroup(2**30, 10)
    group.close()
    with pytest.raises(SandboxFault, match="cannot be started"):
        handshake.start_child(
            handshake.wrap_command(["true"], subprocess.DEVNULL), SMALL, group, {"PATH": "/bin"}, "/"
        )
