"""Sessions: the same folders, endings and resume as runs of an agent."""

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


def test_a_session_writes_the_same_folder_as_a_run(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "outside-program", tmp_path / "run", seed=3) as session:
        assert session.folder == tmp_path / "run"
        assert (session.done, session.result, session.remaining_budget) == (
            False,
            None,
            "20 of 20 steps and 30 min 00 s left",
        )
        step = session.step(write("submission.csv", PERFECT))
        assert (step.number, step.failed) == (1, False)
        assert session.remaining_budget.startswith("19 of 20 steps")
        session.step(SUBMIT)
        assert session.done and session.result is None  # graded only when the session is finished
    result = session.result
    assert result and (result.ending, result.score, result.success) == ("submitted", 0.0, True)
    assert (result.agent, result.seed, result.steps) == ("outside-program", 3, 2)
    assert result.folder == tmp_path / "run"
    folder = RunFolder(tmp_path / "run")
    assert folder.result == result
    assert [check.what for check in verify_run(folder, setup) if not check.holds] == []


def test_no_step_can_be_taken_after_the_end(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "outside-program", tmp_path / "run") as session:
        session.step(SUBMIT)
        for _ in range(150):  # unlike an agent, a session is never killed for this
            with pytest.raises(RunOver, match="submitted"):
                session.step(EXECUTE)
        first = session.finish()
        assert session.finish() is first
    assert RunFolder(tmp_path / "run").steps()[-1].number == 1
    assert first.note == "submission.csv is missing"


def test_a_session_that_closes_without_submitting_is_graded_as_stopped(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "outside-program", tmp_path / "run") as session:
        session.step(EXECUTE)
    assert session.result and (session.result.ending, session.result.score) == ("stopped", 5.0)
    with pytest.raises(RunOver, match="stopped"):
        session.step(EXECUTE)


def test_a_limit_ends_a_session(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "outside-program", tmp_path / "run", limits={"steps": 1}) as session:
        session.step(EXECUTE)
        assert session.done
    assert session.result and (session.result.ending, session.result.score) == ("steps", 5.0)


def test_a_suspended_session_can_be_reopened(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "outside-program", tmp_path / "run") as session:
        session.step(write("note.txt", "here"))
        session.step(repl("remembered = 41"))
        session.suspend()
    assert session.result is None and session.done
    assert not (tmp_path / "run" / "result.json").exists()
    with pytest.raises(UsageError, match=r"taken by another program \(outside-program\)"):
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


def test_after_an_exception_in_the_block_the_session_can_be_reopened(setup: Setup, tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        open_session(setup, "outside-program", tmp_path / "run") as session,
    ):
        session.step(EXECUTE)
        raise ZeroDivisionError
    assert RunFolder(tmp_path / "run").result is None
    with reopen_session(tmp_path / "run", quiet) as again:
        assert again.step(SUBMIT).number == 2


def test_a_submission_that_was_not_graded_is_graded_when_reopened(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "outside-program", tmp_path / "run") as session:
        session.step(write("submission.csv", PERFECT))
        session.step(SUBMIT)
        session.suspend()
    with reopen_session(tmp_path / "run", quiet) as again:
        assert again.done
    assert again.result and (again.result.ending, again.result.score) == ("submitted", 0.0)


def test_parallel_calls_are_executed_one_at_a_time(setup: Setup, tmp_path: Path) -> None:
    with (
        open_session(setup, "outside-program", tmp_path / "run") as session,
        ThreadPoolExecutor(8) as threads,
    ):
        calls = [write(f"{number}.txt", str(number)) for number in range(8)]
        steps = list(threads.map(session.step, calls))
        session.suspend()
    assert sorted(step.number for step in steps) == list(range(1, 9))
    assert [step.call for step in steps] == calls
    assert [step.number for step in RunFolder(tmp_path / "run").steps()] == list(range(1, 9))


def test_suspending_interrupts_the_step_in_progress(setup: Setup, tmp_path: Path, until: Until) -> None:
    with open_session(setup, "outside-program", tmp_path / "run") as session:
        session.step(write("forever.py", "import time\nprint('on', flush=True)\ntime.sleep(600)\n"))
        errors: list[BaseException] = []
        worker = Thread(target=take_endless_step, args=(session, errors))
        worker.start()
        until(lambda: session.env.context.output and session.env.context.output.last_line)
        session.suspend()
        worker.join()
    assert [type(error) for error in errors] == [Stopped]
    assert len(RunFolder(tmp_path / "run").steps()) == 1


def take_endless_step(session: Session, errors: list[BaseException]) -> None:
    try:
        session.step(Call(action="Execute Script", args={"script_name": "forever.py"}))
    except Stopped as stopped:
        errors.append(stopped)


def test_a_session_with_a_fault_has_no_score(setup: Setup, tmp_path: Path) -> None:
    with pytest.raises(Fault), open_session(setup, "outside-program", tmp_path / "run") as session:
        (tmp_path / "run" / "trace.jsonl").mkdir()  # so that no line can be written
        session.step(EXECUTE)
    assert session.result and (session.result.ending, session.result.score) == ("fault", None)
    (tmp_path / "run" / "trace.jsonl").rmdir()
    with reopen_session(tmp_path / "run", quiet) as again:
        again.step(EXECUTE)
    assert again.result and (again.result.ending, again.result.score) == ("stopped", 5.0)


def test_a_grader_that_fails_is_a_fault_of_a_session(variant: Callable[..., Path], tmp_path: Path) -> None:
    broken = variant({"grade.py": "def grade(submission, private):\n    raise RuntimeError('oh')\n"})
    with open_session(
        prepare_setup(str(broken), "open", "bwrap", quiet), "outside-program", tmp_path / "run"
    ) as session:
        session.step(write("submission.csv", PERFECT))
    assert session.result and session.result.ending == "fault" and "oh" in session.result.note


def test_actions_that_need_a_model_use_the_one_passed_to_the_session(setup: Setup, tmp_path: Path) -> None:
    reading = Call(
        action="Understand File", args={"file_name": "train.py", "things_to_look_for": "the guess"}
    )
    agent_spec = AgentSpec(agent="outside-program", model="parrot")
    with open_session(
        setup, agent_spec, tmp_path / "run", models={"main": FakeModel(["It guesses 9.5."])}
    ) as session:
        assert "It guesses 9.5." in session.step(reading).observation
        session.suspend()
    with reopen_session(tmp_path / "run", quiet, models={"main": FakeModel(["-", "Still."])}) as again:
        assert "Still." in again.step(reading).observation
    assert again.result and (again.result.model, again.result.tokens) == ("parrot", 80)
    with open_session(setup, "no-model", tmp_path / "other") as without:
        assert without.step(reading).failed


def test_a_dollar_limit_of_a_session_needs_a_price(setup: Setup, tmp_path: Path) -> None:
    unpriced = FakeModel([])
    unpriced.price = None
    with (
        pytest.raises(UsageError, match="no price is known for the main model"),
        open_session(
            setup, "outside-program", tmp_path / "run", limits={"dollars": 1}, models={"main": unpriced}
        ),
    ):
        pass
    assert not (tmp_path / "run").exists()


KILLED_SESSION = """
import os, sys
from pathlib import Path
from mlagentbench.records import Call
from mlagentbench.runner.session import open_session
from mlagentbench.runner.setup import prepare_setup

setup = prepare_setup(sys.argv[1], "open", "bwrap", print)
with open_session(setup, "outside-program", Path(sys.argv[2])) as session:
    session.step(Call(action="Write File", args={"file_name": "note.txt", "content": "here"}))
    os.kill(os.getpid(), 9)
"""


def test_a_killed_process_loses_no_step_of_a_session(toy: Path, tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_SESSION, str(toy), str(tmp_path / "run")], check=False, timeout=60
    )
    assert killed.returncode == -9
    with reopen_session(tmp_path / "run", quiet) as again:
        seen = again.step(Call(action="Read File", args={"file_name": "note.txt"}))
    assert (seen.number, seen.observation.strip()) == (2, "here")


def test_two_sessions_cannot_share_a_folder(setup: Setup, tmp_path: Path) -> None:
    with open_session(setup, "outside-program", tmp_path / "run") as session:
        with (
            pytest.raises(UsageError, match="Another process is running"),
            reopen_session(tmp_path / "run", quiet),
        ):
            pass
        session.suspend()
