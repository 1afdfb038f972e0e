"""Starting sandboxes from any thread, many at once, and after a fork; removing what killed harnesses left."""

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
from script_runner import SMALL, ScriptRunner, find_marked_pids

from mlagentbench.errors import SandboxFault
from mlagentbench.sandbox import handshake
from mlagentbench.sandbox.cgroups import Cgroup, find_controller_folders
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.repl import Repl

HARNESS = Path(__file__).parent / "harness.py"
needs_cgroups = pytest.mark.skipif(not find_controller_folders(), reason="no cgroups on this machine")


def test_a_sandbox_outlives_the_thread_that_started_it(run: ScriptRunner) -> None:
    repls: list[Repl] = []
    starter = threading.Thread(target=lambda: repls.append(Repl(run.sandbox, run.spec)))
    starter.start()
    starter.join()
    try:
        output = CommandOutput()
        assert repls[0].run("6 * 7", 20, output) is None
        assert output.text.strip() == "42"
    finally:
        repls[0].close()


def test_a_sandbox_killed_during_setup_is_a_fault_at_once_and_its_children_are_killed(
    until: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, cgroup = secrets.token_hex(16), Cgroup(2**30, 64)
    monkeypatch.setattr(handshake, "START_TIMEOUT_S", 15)
    command = [
        "/bin/sh",
        "-c",
        "sleep 1000 & kill -9 $$",
    ]  # like a bwrap that is killed before it has created its namespaces
    started = time.monotonic()
    try:
        with pytest.raises(SandboxFault, match="no output"):
            handshake.start_child(command, SMALL, cgroup, {"PATH": os.environ["PATH"], "MARKER": marker}, "/")
        assert time.monotonic() - started < handshake.START_TIMEOUT_S
        until(lambda: not find_marked_pids(marker))
    finally:
        cgroup.close()


def test_many_threads_start_sandboxes_at_once(run: ScriptRunner) -> None:
    (run.workspace / "script.py").write_text("import sys; print(sys.argv[1])")

    def run_script(number: int) -> str:
        output = CommandOutput()
        argv = ["python", "-S", "script.py", str(number)]
        assert run.sandbox.run(argv, run.spec, 60, output).exit_code == 0
        return output.text.strip()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run_script, range(16))) == [str(number) for number in range(16)]


def test_a_fork_of_the_harness_starts_sandboxes_of_its_own(run: ScriptRunner) -> None:
    assert run("print(1)").exit_code == 0
    child = os.fork()
    if child == 0:
        try:
            run("open('forked', 'w')")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (run.workspace / "forked").exists()


def test_a_workspace_recreated_under_the_same_name_is_the_one_that_is_mounted(run: ScriptRunner) -> None:
    assert run("open('old', 'w')").exit_code == 0
    run.workspace.rename(run.folder / "before")
    run.workspace.mkdir()
    os.chown(run.workspace, *(run.folder / "before").stat()[4:6])
    assert run("import os; print(os.listdir('.'))").text.strip() == "['script.py']"


def test_more_read_only_files_than_can_be_mounted_are_a_fault_with_a_reason(run: ScriptRunner) -> None:
    (run.workspace / "f").touch()
    with pytest.raises(SandboxFault, match="maximum number of arguments"):
        run.sandbox.start(["true"], replace(run.spec, read_only_paths=("f",) * 4000))


@needs_cgroups
def test_cgroups_of_an_earlier_process_with_our_pid_are_removed_and_ours_are_not(run: ScriptRunner) -> None:
    ours = Cgroup(2**30, 10)
    name, namespace, number, _, _ = next(iter(ours.folders.values())).name.split("-")
    stale = [
        parent / f"{name}-{namespace}-{number}-1-7" for parent in set(find_controller_folders().values())
    ]
    other_namespace = [
        parent / f"{name}-1.1-{number}-1-7" for parent in set(find_controller_folders().values())
    ]
    try:
        for cgroup in (*stale, *other_namespace):
            cgroup.mkdir()
        (run.workspace / "script.py").write_text("print(1)")
        subprocess.run(
            [sys.executable, str(HARNESS), "bwrap", str(run.workspace), run.marker, "20"],
            check=True,
            capture_output=True,
        )
        assert not [cgroup for cgroup in stale if cgroup.exists()]
        assert all(folder.exists() for folder in (*ours.folders.values(), *other_namespace))
    finally:
        ours.close()
        for cgroup in other_namespace:
            cgroup.rmdir()


@needs_cgroups
def test_a_cgroup_that_cannot_be_joined_is_a_fault_and_nothing_starts_without_limits(
    run: ScriptRunner,
) -> None:
    cgroup = Cgroup(2**30, 10)
    cgroup.close()
    with pytest.raises(SandboxFault, match="cannot be started"):
        handshake.start_child(
            handshake.wrap_command(["true"], subprocess.DEVNULL), SMALL, cgroup, {"PATH": "/bin"}, "/"
        )
