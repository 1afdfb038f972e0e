"""Resuming: kill -9 at any moment loses nothing, and the record is that of an undisturbed run."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_model import FakeModel

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, UsageError
from mlagentbench.records import Call, Message, Result, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import resume_run

Play = Callable[..., Result]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
BUSY = '''
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call


class Busy(Agent):
    """Writes, runs and undoes."""

    def run(self, env):
        def do(action, **args):
            return env.step(Call(action=action, args=args))

        for number in range(4):
            value = self.random.randrange(10**6)
            code = f"n = {value}\\nopen('made-{number}', 'w').write('x' * n)\\nprint(n)\\n"
            do("Write File", file_name="a.py", content=code)
            seen = do("Execute Script", script_name="a.py")
            assert str(value) in seen, seen
            do("Append File", file_name="log", content=seen[-3:])
            if number % 2:
                do("Undo Edit Script", script_name="a.py")
        do("Python REPL", command="import os; names = sorted(os.listdir('.')); names")
        do("Execute Script", script_name="train.py")
        do("Final Answer", final_answer="done")
'''


def quiet(line: str) -> None:
    pass


def comparable_record(steps: tuple[Step, ...]) -> list[tuple[object, ...]]:
    """What must be the same in every run: everything but times and memory."""
    masked = re.compile(r"\d+\.\d s, peak memory \d+ MB")
    return [
        (step.number, step.call, masked.sub("", step.observation), step.failed, step.notes) for step in steps
    ]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "busy.py"
    path.write_text(BUSY)
    return path


@pytest.mark.slow
def test_kills_at_random_moments_lose_no_step_and_repeat_none(
    toy: Path, busy: Path, tmp_path: Path, cli: Cli
) -> None:
    finished_run = cli("run", toy, "--agent", busy, "--seed", 7, "--out", tmp_path / "undisturbed", "--json")
    assert finished_run.returncode == 0, finished_run.stderr
    undisturbed = RunFolder(tmp_path / "undisturbed")
    rng, kills, moments, finished = random.Random(4), 0, set(), 0
    while (
        kills < 15 or len(moments) < 6 or not finished
    ):  # how often one run can be killed depends on the machine
        assert kills < 100, "the kills must be spread over the run"
        folder = tmp_path / f"run-{finished}"
        start = ["run", toy, "--agent", busy, "--seed", 7, "--out", folder]
        command = ["resume", folder] if (folder / "run.json").is_file() else start
        with subprocess.Popen(
            [sys.executable, "-m", "mlagentbench", *map(str, command)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as harness:
            assert harness.stderr
            known = len(RunFolder(folder).steps()) if (folder / "run.json").is_file() else 0
            for _ in range(known + 1):  # the replayed steps, and one more
                harness.stderr.readline()
            try:
                harness.communicate(timeout=rng.uniform(0, 0.12))
            except subprocess.TimeoutExpired:
                harness.kill()
                harness.communicate()
                kills += 1
        run = RunFolder(folder)
        steps = run.steps()
        moments.add(len(steps))
        assert comparable_record(steps) == comparable_record(undisturbed.steps())[: len(steps)]
        if run.result:
            finished += 1
            assert (run.result.score, run.result.ending) == (5.0, "submitted")
            assert run.result.snapshot == (undisturbed.result and undisturbed.result.snapshot)
            assert comparable_record(steps) == comparable_record(undisturbed.steps())
            clocks = [step.clock for step in steps]
            assert clocks == sorted(clocks) and all(step.clock >= step.seconds for step in steps)
            assert run.result.seconds == round(clocks[-1], 3)


def act(*texts: str) -> Callable[[Environment], None]:
    def behave(env: Environment) -> None:
        for text in texts:
            env.step(Call(action="Write File", args={"file_name": "a", "content": text}))

    return behave


def test_resuming_from_a_step_drops_later_steps_and_archives_the_result(
    play: Play, tmp_path: Path, setup: Setup
) -> None:
    assert play(act("1", "2", "3", "4")).steps == 4
    folder = RunFolder(tmp_path / "run")
    clock = folder.steps()[1].clock
    folder.rewind(2)
    result = play(act("1", "2", "other"))
    assert result.steps == 3 and [step.call.args["content"] for step in folder.steps()] == ["1", "2", "other"]
    assert folder.steps()[2].clock >= clock
    assert folder.open_store(setup.data).read_content(3, "a") == b"other"
    assert json.loads((tmp_path / "run" / "result-1.json").read_text())["steps"] == 4
    folder.rewind(0)
    play(act("anew"))
    assert len(folder.steps()) == 1 and (tmp_path / "run" / "result-2.json").is_file()
    assert (tmp_path / "run" / "workspace" / "a").read_text() == "anew"
    for wrong in (-1, 2):
        with pytest.raises(UsageError, match="--from-step must be between 0 and 1"):
            folder.rewind(wrong)


KILL_DURING_REWIND = """
import os, shutil, signal, sys
from itertools import count
from pathlib import Path

from mlagentbench.runner.folder import RunFolder

def follow(frame, event, argument):
    global left
    if frame.f_code.co_name not in ("rewind", "archive_result", "truncate", "remove_accesses_after"):
        return None
    left -= event == "line"
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return follow

run = Path(sys.argv[1])
for left in count(1):
    copy = run.with_name(f"killed-{left}")
    shutil.copytree(run, copy)
    folder = RunFolder(copy)
    child = os.fork()
    if not child:
        sys.settrace(follow)
        folder.rewind(2)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
    files = [path.read_bytes() for path in folder.path.glob("**/*.jsonl")]
    now = [(folder.path / "result.json").exists(), *files]
    if left > 1 and now == before:
        shutil.rmtree(copy)
    before = now
"""


def chat(env: Environment) -> None:
    for number in range(4):
        reply = env.ask([Message(role="user", text=f"{number}?")]).text
        env.step(Call(action="Write File", args={"file_name": "a", "content": reply}))


def test_a_kill_anywhere_in_a_rewind_leaves_a_finished_run_or_one_that_can_be_resumed(
    play: Play, tmp_path: Path
) -> None:
    words = ["one", "two", "three", "four"]
    done = play(chat, models={"main": FakeModel(words)})
    subprocess.run([sys.executable, "-c", KILL_DURING_REWIND, str(tmp_path / "run")], check=True)
    states = set()
    for copy in sorted(tmp_path.glob("killed-*")):
        folder = RunFolder(copy)
        steps, last = len(folder.steps()), max(line.step for line in folder.open_store().manifest_lines())
        states.add((folder.result is None, steps, last, len(list(folder.calls()))))
        if folder.result:
            assert folder.compute_record_hashes(4) == {
                name: getattr(done, name) for name in folder.compute_record_hashes(4)
            }
        else:
            result = play(chat, name=copy.name, models={"main": FakeModel(words)})
            assert (result.ending, result.steps, result.snapshot) == ("stopped", 4, done.snapshot), copy
    assert {(False, 4, 4, 4), (True, 4, 4, 4), (True, 2, 4, 4), (True, 2, 2, 4), (True, 2, 2, 2)} == states


def test_a_damaged_record_is_not_changed_by_a_rewind(play: Play, tmp_path: Path) -> None:
    play(act("1", "2", "3", "4"))
    manifest = tmp_path / "run" / "snapshots" / "manifest.jsonl"
    lines = manifest.read_bytes().splitlines(keepends=True)
    manifest.write_bytes(b"".join([*lines[:3], b"?\n", *lines[4:]]))
    folder = RunFolder(tmp_path / "run")
    for step in (None, 4, 3):
        with pytest.raises(Fault, match="line 4 is damaged"):
            folder.rewind(step)
        assert folder.result and len(folder.steps()) == 4
    folder.rewind(2)  # cuts off what is damaged
    assert folder.result is None and len(folder.steps()) == 2
    assert manifest.read_bytes() == b"".join(lines[:3])


def test_a_run_is_resumed_before_a_damaged_line_of_its_trace(play: Play, tmp_path: Path, cli: Cli) -> None:
    play(act("1", "2", "3", "4"))
    trace = tmp_path / "run" / "trace.jsonl"
    lines = trace.read_bytes().splitlines(keepends=True)
    trace.write_bytes(b"".join([*lines[:2], lines[2][:40] + b"\n", *lines[3:]]))
    for step in (None, 3):
        with pytest.raises(Fault, match=r"line 3 is damaged.*\. To continue before it: --from-step 2$"):
            RunFolder(tmp_path / "run").rewind(step)
    result = play(act("1", "2", "3", "4"), from_step=2)
    assert (result.steps, len(RunFolder(tmp_path / "run").steps())) == (4, 4)


def test_a_damaged_model_call_after_the_named_step_is_cut_off(play: Play, tmp_path: Path) -> None:
    words = ["one", "two", "three", "four"]
    play(chat, models={"main": FakeModel(words)})
    calls = tmp_path / "run" / "model_calls.jsonl"
    lines = calls.read_bytes().splitlines(keepends=True)
    calls.write_bytes(b"".join([*lines[:3], b"{}\n"]))
    with pytest.raises(Fault, match="line 4 is damaged"):
        RunFolder(tmp_path / "run").rewind()
    RunFolder(tmp_path / "run").rewind(2)
    assert len(list(RunFolder(tmp_path / "run").calls())) == 2


def test_a_deleted_object_of_a_snapshot_is_noticed_before_the_run_is_resumed(
    cli: Cli, toy: Path, tmp_path: Path
) -> None:
    assert cli("run", toy, "--agent", "baseline", "--out", tmp_path / "run").returncode == 0
    before = (tmp_path / "run" / "result.json").read_bytes()
    state = RunFolder(tmp_path / "run").open_store(writable=False).state(1)
    digest = state["submission.csv"].hash
    for path in (tmp_path / "run" / "snapshots" / "objects" / digest[:2]).glob(f"{digest[2:]}*"):
        path.unlink()
    refused = cli("resume", tmp_path / "run", "--from-step", 1)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused.stderr
    assert "the stored content of submission.csv is missing. Resume it with --from-step 0." in refused.stderr
    assert (tmp_path / "run" / "result.json").read_bytes() == before
    assert cli("resume", tmp_path / "run", "--from-step", 0).returncode == 0


def test_a_moved_task_folder_is_asked_for_by_name(
    cli: Cli, variant: Callable[..., Path], tmp_path: Path
) -> None:
    task = variant({})
    assert cli("run", task, "--agent", "baseline", "--out", tmp_path / "run").returncode == 0
    moved = (tmp_path / "elsewhere").joinpath("toy")
    moved.parent.mkdir()
    task.rename(moved)
    for command in (("resume", "--from-step", 1), ("grade",), ("verify",)):
        refused = cli(command[0], tmp_path / "run", *command[1:])
        assert refused.returncode == 2 and f"The task folder {task} is not there" in refused.stderr
        assert refused.stderr.endswith("Pass its new place with --task FOLDER.\n")
        done = cli(command[0], tmp_path / "run", *command[1:], "--task", moved)
        assert done.returncode == 0, done.stderr


def test_a_finished_run_is_not_resumed_by_accident(toy: Path, tmp_path: Path, cli: Cli) -> None:
    assert cli("run", toy, "--agent", "baseline", "--out", tmp_path / "run").returncode == 0
    refused = cli("resume", tmp_path / "run")
    assert refused.returncode == 2 and "is finished (submitted). Pass --from-step" in refused.stderr
    again = resume_run(tmp_path / "run", 1, quiet)
    assert (again.ending, again.steps) == ("submitted", 2)


def test_an_agent_that_stops_before_the_end_of_its_record_is_a_fault(play: Play) -> None:
    play(act("1", "2", "3"))
    result = play(act("1"))
    assert (
        result.ending == "fault"
        and "the agent stopped after step 1, but the record has more steps" in result.note
    )
    assert "--from-step 1" in result.note
    assert play(act("1", "2", "3")).ending == "stopped"


def test_an_incomplete_last_line_is_not_a_step(play: Play, tmp_path: Path) -> None:
    play(act("1", "2"))
    trace = tmp_path / "run" / "trace.jsonl"
    whole = trace.read_bytes()
    trace.write_bytes(whole + whole[:50])
    assert play(act("1", "2", "3")).steps == 3
    trace.write_bytes(trace.read_bytes()[:-20])
    assert play(act("1", "2", "three")).steps == 3


def test_partial_files_of_a_killed_process_are_removed_on_resume(play: Play, tmp_path: Path) -> None:
    play(act("1"))
    strays = [tmp_path / "run" / name for name in (".run-7.json", "result.json.part", "crash.txt.part")]
    for stray in strays:
        stray.touch()
    play(act("1", "2"))
    assert not any(stray.exists() for stray in strays)


def test_a_missing_or_modified_workspace_is_restored_on_resume(play: Play, tmp_path: Path) -> None:
    play(act("1", "2"))
    shutil.rmtree(tmp_path / "run" / "workspace")
    play(act("1", "2", "3"))
    (tmp_path / "run" / "workspace" / "a").unlink()
    (tmp_path / "run" / "workspace" / "a").symlink_to("/etc/passwd")
    (tmp_path / "run" / "workspace" / "stray").write_text("x")
    play(act("1", "2", "3", "4"))
    assert (tmp_path / "run" / "workspace" / "a").read_text() == "4"
    assert not (tmp_path / "run" / "workspace" / "stray").exists()


def test_a_run_can_be_moved_to_another_folder_and_another_cache(
    play: Play, tmp_path: Path, setup: Setup, cli: Cli, busy: Path, toy: Path
) -> None:
    home = setup.data.folder.parents[2]
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "runtimes").symlink_to(home / "runtimes")
    assert cli("run", toy, "--agent", busy, "--out", tmp_path / "here").returncode == 0
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "here", tmp_path / "elsewhere" / "there")
    moved = tmp_path / "elsewhere" / "there"
    shutil.rmtree(moved / "workspace")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            patch.delenv(name)
        patch.setenv("PATH", "/usr/bin:/bin")
        patch.setenv("MLAGENTBENCH_HOME", str(tmp_path / "home"))
        shown = cli("show", moved)
        assert shown.returncode == 0 and "toy" in shown.stdout
        verified = cli("verify", moved, "--json")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert json.loads(cli("grade", moved, "--json").stdout)[0]["score"] == 5.0
        resumed = cli("resume", moved, "--from-step", 6, "--json")
        assert resumed.returncode == 0, resumed.stderr
        result = json.loads(resumed.stdout)
        assert (result["score"], result["steps"], result["folder"]) == (5.0, 17, str(moved))


def test_a_run_whose_task_changed_cannot_be_resumed(
    variant: Callable[..., Path], tmp_path: Path, cli: Cli
) -> None:
    task = variant({})
    assert cli("run", task, "--agent", "baseline", "--out", tmp_path / "run").returncode == 0
    (task / "description.md").write_text("Something easier.")
    refused = cli("resume", tmp_path / "run", "--from-step", 1)
    assert (
        refused.returncode == 2 and "cannot be resumed: its task changed since it started" in refused.stderr
    )
    assert len(RunFolder(tmp_path / "run").steps()) == 2
