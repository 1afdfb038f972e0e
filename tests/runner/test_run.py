import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, TaskFault, UsageError
from mlagentbench.records import Call, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.start import measure_baseline, start_run

Play = Callable[..., Result]
EXECUTE = Call(action="Execute Script", args={"script_name": "train.py"})
SUBMIT = Call(action="Final Answer", args={"final_answer": "done"})
PERFECT = "id,value\n" + "".join(f"{n},{n}\n" for n in range(10))


def write(name: str, content: str) -> Call:
    return Call(action="Write File", args={"file_name": name, "content": content})


def win(env: Environment) -> None:
    env.step(write("submission.csv", PERFECT))
    env.step(SUBMIT)


def test_a_run_folder_holds_the_spec_the_steps_and_the_result(
    play: Play, tmp_path: Path, setup: Setup
) -> None:
    result = play(win)
    assert (result.ending, result.score, result.success, result.valid) == ("submitted", 0.0, True, True)
    assert (result.baseline, result.improvement, result.steps) == (5.0, 1.0, 2)
    folder = RunFolder(tmp_path / "run")
    assert folder.result == result
    assert folder.spec.hashes == setup.hashes == result.hashes
    assert folder.spec.baseline == setup.task.edition("open").levels.starter
    assert [step.call.action for step in folder.steps()] == ["Write File", "Final Answer"]
    assert result.seconds == round(folder.steps()[-1].clock, 3) > 0
    assert str(tmp_path) not in (tmp_path / "run" / "result.json").read_text()  # a run may be moved


def test_an_agent_that_returns_without_submitting_is_graded(play: Play) -> None:
    result = play(lambda env: env.step(EXECUTE) and None)
    assert (result.ending, result.score, result.success) == ("stopped", 5.0, False)


CRASH = """
import json
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call


class Clumsy(Agent):
    def run(self, env):
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        json.loads("{")
"""


def test_an_agent_that_raises_is_graded_and_the_note_names_the_line(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "clumsy.py").write_text(CRASH)
    result = start_run(setup, str(tmp_path / "clumsy.py"), tmp_path / "run")
    assert (result.agent, result.ending, result.score) == ("clumsy.py", "crashed", 5.0)
    assert result.note.startswith("The agent crashed: JSONDecodeError: Expecting property name")
    assert result.note.endswith("(clumsy.py:10)")
    assert "json.loads" in (tmp_path / "run" / "crash.txt").read_text()
    assert (tmp_path / "run" / "agent.py").read_text() == CRASH


@pytest.mark.parametrize(
    "error", [SystemExit(0), RecursionError("deep"), UsageError("x"), AssertionError(), StopIteration()]
)
def test_any_exception_of_an_agent_is_a_crash_of_the_agent(play: Play, error: BaseException) -> None:
    def crash(env: Environment) -> None:
        raise error

    result = play(crash)
    assert result.ending == "crashed" and type(error).__name__ in result.note
    assert not result.valid and not result.success


def test_an_agent_that_acts_after_the_end_is_stopped(play: Play) -> None:
    def insist(env: Environment) -> None:
        while True:
            env.step(EXECUTE)

    result = play(insist, steps=3)
    assert (result.ending, result.steps, result.note, result.score) == ("steps", 3, "", 5.0)

    def insist_ignoring_errors(env: Environment) -> None:
        while True:
            with suppress(Exception):
                env.step(Call(action="List Files"))

    result = play(insist_ignoring_errors, "deaf", steps=3)
    assert (result.ending, result.steps) == (
        "steps",
        3,
    ) and "The agent kept acting after the end of the run" in result.note

    def submit_twice(env: Environment) -> None:
        win(env)
        win(env)

    result = play(submit_twice, "twice")
    assert (result.ending, result.steps, result.score) == ("submitted", 2, 0.0)


def test_an_agent_that_does_nothing_has_an_invalid_submission_and_no_score(play: Play) -> None:
    result = play(lambda env: None)
    assert (result.ending, result.score, result.valid) == ("stopped", None, False)
    assert result.note == "submission.csv is missing" and result.baseline == 5.0


CSV = """
from mlagentbench.grading.checks import read_answers, read_submission

def grade(submission, private):
    like = read_answers(private / "answers.csv", id="id", columns=["value"])
    return float(read_submission(submission, id="id", columns=["value"], like=like)["value"].mean())
"""


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("import os; os.symlink('/etc/passwd', 'submission.csv')", "submission.csv is a link, not a file"),
        ("import os; os.mkdir('submission.csv')", "submission.csv is a folder, not a file"),
        ("import os; os.mkfifo('submission.csv')", "submission.csv is missing"),
        ("open('submission.csv', 'wb').truncate(150 << 20)", "submission.csv has 157,286,400 bytes"),
        ("open('submission.csv', 'wb').write(bytes(range(256)))", "not a csv file in UTF-8"),
    ],
)
def test_a_submission_that_is_not_a_csv_file_is_invalid_with_a_reason(
    play: Play, variant: Callable[..., Path], script: str, note: str
) -> None:
    def spoil(env: Environment) -> None:
        env.step(write("spoil.py", script))
        assert "exit code 0" in env.step(Call(action="Execute Script", args={"script_name": "spoil.py"}))
        env.step(SUBMIT)

    result = play(spoil, setup=prepare_setup(str(variant({"grade.py": CSV})), "open", "bwrap", print))
    assert result.ending == "submitted" and not result.valid and result.score is None
    assert note in result.note


def test_a_run_with_a_fault_has_no_score_even_if_the_agent_catches_every_exception(
    play: Play, tmp_path: Path
) -> None:
    def ignore(env: Environment) -> None:
        env.step(write("submission.csv", PERFECT))
        env.context.store.folder.rename(tmp_path / "gone")
        env.context.store.folder.write_text("disk error")
        for _ in range(3):
            with suppress(Exception):
                env.step(write("x", "y"))

    result = play(ignore)
    assert (result.ending, result.score, result.success, result.steps) == ("fault", None, False, 1)
    assert "snapshot" in result.note or "manifest" in result.note


def test_any_error_of_the_harness_during_grading_is_a_fault(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no folder").touch()

    def act(env: Environment) -> None:
        win(env)
        monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path / "no folder"))

    result = play(act)
    assert (result.ending, result.score, result.valid) == ("fault", None, False)
    assert result.note.startswith("UsageError: Cannot use ")


def test_a_fault_is_recorded_and_the_run_can_be_resumed(play: Play, tmp_path: Path) -> None:
    outputs = tmp_path / "run" / "outputs"

    def act(env: Environment) -> None:
        env.step(write("submission.csv", PERFECT))
        with suppress(Fault):
            env.step(EXECUTE)

    outputs.parent.mkdir()
    created: list[Any] = []

    def sabotage(env: Environment) -> None:
        if not created:
            created.append(outputs.write_text("in the way"))
        act(env)

    result = play(sabotage)
    assert (result.ending, result.score, result.success, result.valid) == ("fault", None, False, False)
    assert "FileExistsError" in result.note
    outputs.unlink()
    result = play(act)
    assert (result.ending, result.score, result.steps) == ("stopped", 5.0, 2)
    assert (tmp_path / "run" / "result-1.json").is_file()


def test_a_folder_that_is_not_empty_is_refused(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(UsageError, match="is not empty"):
        start_run(setup, "nothing", tmp_path / "taken")
    with pytest.raises(UsageError, match=r"Cannot create a run in .*: (File exists|Not a directory)"):
        start_run(setup, "nothing", tmp_path / "taken" / "file")
    with pytest.raises(UsageError, match=r"Cannot create a run in .*: Not a directory"):
        start_run(setup, "nothing", tmp_path / "taken" / "file" / "below")


FULL_DISK_SCRIPT = """
import os, resource, signal, sys
from pathlib import Path
from mlagentbench.errors import UsageError
from mlagentbench.runner.folder import RunFolder

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
spec, folder, agent = RunFolder(Path(sys.argv[1])).spec, Path(sys.argv[2]), Path(sys.argv[3])
for limit in (0, 100, agent.stat().st_size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        RunFolder.create(folder, spec, agent)
    except UsageError as error:
        print(error)
    print(os.listdir(folder))
"""


def test_a_failed_creation_leaves_an_empty_folder(play: Play, setup: Setup, tmp_path: Path) -> None:
    play(lambda env: None)
    agent = tmp_path / "agent.py"
    agent.write_text("# an agent\n" * 20)
    command = [sys.executable, "-c", FULL_DISK_SCRIPT, tmp_path / "run", tmp_path / "new", agent]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"Cannot create a run in {tmp_path / 'new'}: File too large\n[]\n" * 3
    assert start_run(setup, "baseline", tmp_path / "new").score == 5.0
    with pytest.raises(
        UsageError,
        match=rf"Choose another --out\. To continue the run: mlagentbench resume {tmp_path / 'new'}$",
    ):
        start_run(setup, "baseline", tmp_path / "new")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "agent.py").touch()
    with pytest.raises(UsageError, match=r"is not empty\. Choose another --out\.$"):
        start_run(setup, "baseline", tmp_path / "full")


def test_two_processes_cannot_run_in_one_folder(play: Play, tmp_path: Path, setup: Setup) -> None:
    refused = []

    def act(env: Environment) -> None:
        with pytest.raises(UsageError, match="is not empty"):
            start_run(setup, "nothing", tmp_path / "run")
        with (
            pytest.raises(UsageError, match="Another process is running "),
            RunFolder(tmp_path / "run").lock(),
        ):
            pass
        refused.append(True)

    assert play(act).ending == "stopped" and refused


def test_an_unsandboxed_run_is_marked(toy: Path, play: Play) -> None:
    result = play(win, setup=prepare_setup(str(toy), "open", "none", lambda line: None))
    assert result.unsandboxed and result.score == 0.0


def test_a_baseline_is_measured_over_seeds(setup: Setup, variant: Callable[..., Path]) -> None:
    lines: list[str] = []
    baseline, scores = measure_baseline(setup, 2, lines.append)
    assert scores == [5.0, 5.0] and (baseline.mean, baseline.sd, baseline.n) == (5.0, 0.0, 2)
    assert lines == ["run 1 of 2: score 5", "run 2 of 2: score 5"]
    silent = prepare_setup(
        str(variant({"starter/train.py": "print('nothing')\n"})), "open", "bwrap", lines.append
    )
    with pytest.raises(
        Fault, match=r"The starter of toy leaves no valid submission: submission\.csv is missing"
    ):
        measure_baseline(silent, 2, lines.append)


def test_a_starter_that_fails_is_reported_with_its_own_last_lines(variant: Callable[..., Path]) -> None:
    source = "print('loading')\ndef load():\n    return {}['y']\nload()\n"
    setup = prepare_setup(str(variant({"starter/train.py": source})), "open", "bwrap", lambda line: None)
    with pytest.raises(
        TaskFault, match=r"^The starter of toy failed: KeyError: 'y' \(train\.py, line 3\)$"
    ) as failure:
        measure_baseline(setup, 2, lambda line: None)
    assert failure.value.details.startswith("loading\nTraceback")
    assert set(re.findall(r'File "(.+?)"', failure.value.details)) == {"/workspace/./train.py"}


def test_a_task_without_a_baseline_is_scored_without_a_verdict(
    variant: Callable[..., Path], play: Play, toy: Path
) -> None:
    toml = (toy / "task.toml").read_text().replace("baseline =", "# baseline =")
    grader = f"# {uuid.uuid4()}: nobody ever measured with this one\n{(toy / 'grade.py').read_text()}"
    folder = variant({"task.toml": toml, "grade.py": grader})
    result = play(win, setup=prepare_setup(str(folder), "open", "bwrap", lambda line: None))
    assert (result.score, result.valid, result.success) == (0.0, True, None)
    assert (
        result.baseline is None
        and "No baseline is known. Measure it with: mlagentbench baseline" in result.note
    )
