"""Runs that are stepped from outside: the same folders, the same endings, the same resume."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest
from fake_model import FakeModel

from mlagentbench.errors import Fault, RunOver, Stopped, UsageError
from mlagentbench.records import AgentSpec, Call
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.session import Session, open_session, reopen_session
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.start import resume_run
from mlagentbench.runner.verify import verify_run

Until = Callable[[Callable[[], object]], None]
EXECUTE = Call(action="Execute Script", args={"script_name": "train.py"})
SUBMIT = Call(action="Final Answer", args={"final_answer": "done"})
PERFECT = "id,value\n" + "".join(f"{n},{n}\n" for n in range(10))


def quiet(line: str) -> None:
    pass


def write(name: str, content: str) -> Call:
    return Call(action="Write File", args={"file_name": name, "content": content})


def repl(command: str) -> Call:
    return Call(action="Python REPL", args={"command": command})


def test_a_session_leaves_the_folder_of_any_run(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "somebody", tmp_path / "run", seed=3) as played:
        assert (played.done, played.result, played.remaining_budget) == (
            False,
            None,
            "20 of 20 steps and 30 min 00 s left",
        )
        step = played.step(write("submission.csv", PERFECT))
        assert (step.number, step.failed) == (1, False)
        assert played.remaining_budget.startswith("19 of 20 steps")
        played.step(SUBMIT)
        assert played.done and played.result is None  # not graded before anybody wants to know
    result = played.result
    assert result and (result.ending, result.score, result.success) == ("submitted", 0.0, True)
    assert (result.agent, result.seed, result.steps) == ("somebody", 3, 2)
    folder = RunFolder(tmp_path / "run")
    assert folder.result == result
    assert [check.what for check in verify_run(folder, setup) if not check.holds] == []


def test_nothing_is_done_after_the_end(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "somebody", tmp_path / "run") as played:
        played.step(SUBMIT)
        for _ in range(150):  # patience with outsiders has no end
            with pytest.raises(RunOver, match="submitted"):
                played.step(EXECUTE)
        first = played.finish()
        assert played.finish() is first
    assert RunFolder(tmp_path / "run").steps()[-1].number == 1
    assert first.note == "submission.csv is missing"


def test_a_session_that_closes_without_an_answer_is_graded_as_stopped(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "somebody", tmp_path / "run") as played:
        played.step(EXECUTE)
    assert played.result and (played.result.ending, played.result.score) == ("stopped", 5.0)
    with pytest.raises(RunOver, match="stopped"):
        played.step(EXECUTE)


def test_a_limit_ends_a_session(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "somebody", tmp_path / "run", limits={"steps": 1}) as played:
        played.step(EXECUTE)
        assert played.done
    assert played.result and (played.result.ending, played.result.score) == ("steps", 5.0)


def test_a_session_that_is_left_goes_on_where_it_was(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "somebody", tmp_path / "run") as played:
        played.step(write("note.txt", "here"))
        played.step(repl("remembered = 41"))
        played.suspend()
    assert played.result is None and played.done
    assert not (tmp_path / "run" / "result.json").exists()
    with pytest.raises(UsageError, match=r"taken by another program \(somebody\)"):
        resume_run(tmp_path / "run", None, quiet)
    with reopen_session(tmp_path / "run", quiet) as again:
        assert [step.number for step in again.env.steps] == [1, 2]
        assert (
            again.step(repl("print(remembered + 1, open('note.txt').read())")).observation.strip()
            == "42 here"
        )
        again.step(SUBMIT)
    assert again.result and again.result.steps == 4
    with pytest.raises(UsageError, match="is finished"), reopen_session(tmp_path / "run", quiet):
        pass
    with reopen_session(tmp_path / "run", quiet, from_step=1) as earlier:
        assert len(earlier.env.steps) == 1 and not earlier.done
        earlier.suspend()


def test_what_the_holder_raises_leaves_the_run_to_be_resumed(setup: Setup, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), open_session(setup, "somebody", tmp_path / "run") as played:
        played.step(EXECUTE)
        raise ZeroDivisionError
    assert RunFolder(tmp_path / "run").result is None
    with reopen_session(tmp_path / "run", quiet) as again:
        assert again.step(SUBMIT).number == 2


def test_a_submission_that_was_not_graded_any_more_is_graded_on_resume(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "somebody", tmp_path / "run") as played:
        played.step(write("submission.csv", PERFECT))
        played.step(SUBMIT)
        played.suspend()
    with reopen_session(tmp_path / "run", quiet) as again:
        assert again.done
    assert again.result and (again.result.ending, again.result.score) == ("submitted", 0.0)


def test_calls_at_once_are_served_in_turn(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "somebody", tmp_path / "run") as played, ThreadPoolExecutor(8) as threads:
        calls = [write(f"{number}.txt", str(number)) for number in range(8)]
        steps = list(threads.map(played.step, calls))
        played.suspend()
    assert sorted(step.number for step in steps) == list(range(1, 9))
    assert [step.call for step in steps] == calls
    assert [step.number for step in RunFolder(tmp_path / "run").steps()] == list(range(1, 9))


def test_leaving_cuts_off_the_step_under_way(setup: Setup, tmp_path: Path, until: Until) -> None:
    with open_session(setup, "somebody", tmp_path / "run") as played:
        played.step(write("forever.py", "import time\nprint('on', flush=True)\ntime.sleep(600)\n"))
        ended: list[BaseException] = []
        worker = Thread(target=_forever, args=(played, ended))
        worker.start()
        until(lambda: played.env.context.output and played.env.context.output.last_line)
        played.suspend()
        worker.join()
    assert [type(error) for error in ended] == [Stopped]
    assert len(RunFolder(tmp_path / "run").steps()) == 1


def _forever(played: Session, ended: list[BaseException]) -> None:
    try:
        played.step(Call(action="Execute Script", args={"script_name": "forever.py"}))
    except Stopped as stopped:
        ended.append(stopped)


def test_a_fault_in_a_step_voids_the_run(setup: Setup, tmp_path: Path) -> None:
    with pytest.raises(Fault), open_session(setup, "somebody", tmp_path / "run") as played:
        (tmp_path / "run" / "trace.jsonl").mkdir()  # where a line should go
        played.step(EXECUTE)
    assert played.result and (played.result.ending, played.result.score) == ("fault", None)
    (tmp_path / "run" / "trace.jsonl").rmdir()
    with reopen_session(tmp_path / "run", quiet) as again:
        again.step(EXECUTE)
    assert again.result and (again.result.ending, again.result.score) == ("stopped", 5.0)


def test_a_grader_that_fails_is_a_fault_here_too(variant: Callable[..., Path], tmp_path: Path) -> None:
    broken = variant({"grade.py": "def grade(submission, private):\n    raise RuntimeError('oh')\n"})
    with open_session(
        prepare_setup(str(broken), "open", "bwrap", quiet), "somebody", tmp_path / "run"
    ) as played:
        played.step(write("submission.csv", PERFECT))
    assert played.result and played.result.ending == "fault" and "oh" in played.result.note


def test_actions_that_need_a_model_ask_the_one_that_is_given(setup: Setup, tmp_path: Path) -> None:
    reading = Call(
        action="Understand File", args={"file_name": "train.py", "things_to_look_for": "the guess"}
    )
    who = AgentSpec(agent="somebody", model="parrot")
    with open_session(
        setup, who, tmp_path / "run", models={"main": FakeModel(["It guesses 9.5."])}
    ) as played:
        assert "It guesses 9.5." in played.step(reading).observation
        played.suspend()
    with reopen_session(tmp_path / "run", quiet, models={"main": FakeModel(["-", "Still."])}) as again:
        assert "Still." in again.step(reading).observation
    assert again.result and (again.result.model, again.result.tokens) == ("parrot", 80)
    with open_session(setup, "nobody's model", tmp_path / "other") as without:
        assert without.step(reading).failed


def test_dollars_need_a_price_here_too(setup: Setup, tmp_path: Path) -> None:
    dear = FakeModel([])
    dear.price = None
    with (
        pytest.raises(UsageError, match="no price is known for the main model"),
        open_session(setup, "somebody", tmp_path / "run", limits={"dollars": 1}, models={"main": dear}),
    ):
        pass
    assert not (tmp_path / "run").exists()


KILLED = """
import os, sys
from pathlib import Path
from mlagentbench.records import Call
from mlagentbench.runner.session import open_session
from mlagentbench.runner.setup import prepare_setup

with open_session(prepare_setup(sys.argv[1], "open", "bwrap", print), "somebody", Path(sys.argv[2])) as played:
    played.step(Call(action="Write File", args={"file_name": "note.txt", "content": "here"}))
    os.kill(os.getpid(), 9)
"""


def test_a_killed_holder_loses_no_step(toy: Path, tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(toy), str(tmp_path / "run")], check=False, timeout=60
    )
    assert killed.returncode == -9
    with reopen_session(tmp_path / "run", quiet) as again:
        seen = again.step(Call(action="Read File", args={"file_name": "note.txt"}))
    assert (seen.number, seen.observation.strip()) == (2, "here")


def test_a_folder_has_one_holder(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "somebody", tmp_path / "run") as played:
        with (
            pytest.raises(UsageError, match="Another process is running"),
            reopen_session(tmp_path / "run", quiet),
        ):
            pass
        played.suspend()
