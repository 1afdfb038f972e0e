"""Grades what an agent left, in a process that the agent never shared."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from mlagentbench.errors import InvalidSubmission, TaskFault
from mlagentbench.grading import history
from mlagentbench.home import home, scratch
from mlagentbench.preparation.prepare import Prepared
from mlagentbench.records import Record, Step
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.sandbox.choose import unprivileged_user
from mlagentbench.stopping import LOOK, Stopping
from mlagentbench.task import Task
from mlagentbench.workspace.manifest import State
from mlagentbench.workspace.store import Store

PACKAGE = Path(__file__).parents[2]
KEYS = {"file": 0o600, "folder": 0o700, "link": 0}


class Grade(Record):
    """What the grader says of one submission."""

    score: float | None = None
    invalid: str = ""
    violations: tuple[str, ...] = ()
    seconds: float = 0.0


class Report(Grade):
    """What the grader's process writes: the grade, and what was against the rules in each script that ran before."""

    earlier: tuple[tuple[str, ...], ...] = ()


def grade(
    task: Task,
    data: Prepared,
    store: Store,
    step: int,
    sandbox: Sandbox,
    steps: Sequence[Step] = (),
    stopping: Stopping | None = None,
) -> Grade:
    """The grade of the workspace as it was after a step; a crash of the grader is a TaskFault, and never a zero.

    With the `steps` up to there, rules that were broken on the way are found as well.
    """
    started = time.monotonic()
    with _submission(task, store, step) as submission:
        if isinstance(submission, InvalidSubmission):
            return Grade(invalid=str(submission))
        with scratch() as folder:
            (earlier := folder / "earlier").mkdir()
            shelf = history.Shelf(store, folder / "contents")
            found = history.ran(store, steps, task.config.submission) if task.has_rules else []
            runs = [shelf.lay(each, earlier / str(number)) for number, each in enumerate(found)]
            report = _ask_child(task, (*submission, earlier), data.private, sandbox, stopping or Stopping())
    whole = task.config.submission == "." or not task.has_rules or not history.crowded(store.state(step))
    known = report.violations if whole else (*report.violations, history.CROWDED)
    violations = (*known, *history.said(runs, report.earlier, known))
    seconds = round(time.monotonic() - started, 3)
    return Grade(score=report.score, invalid=report.invalid, violations=violations, seconds=seconds)


@contextmanager
def _submission(task: Task, store: Store, step: int) -> Iterator[tuple[Path, Path] | InvalidSubmission]:
    """Fresh copies of what is graded and of the scripts beside it, or why there are none."""
    with scratch() as folder:
        wanted = task.config.submission
        if wanted == ".":
            target = folder / "submission"
            target.mkdir()
            store.restore(step, target, unprivileged_user("grading"), _unlocked(store.state(step)))
            yield target, target
            return
        state = store.state(step)
        entry = state.get(wanted)
        if entry is None:
            yield InvalidSubmission(f"{wanted} is missing")
        elif entry.kind != "file":
            yield InvalidSubmission(f"{wanted} is a {entry.kind}, not a file")
        else:
            target, sources = folder / Path(wanted).name, folder / "sources"
            store.export(step, wanted, target)
            sources.mkdir()
            for name, script in islice(history.scripts(state).items(), history.SCRIPTS):
                history.put(store, step, name, script, sources / name)
            yield target, sources


def _unlocked(state: State) -> State:
    """The same, open to its owner: what an agent locked would be a crash of a grader that is not root."""
    return {path: entry._replace(mode=entry.mode | KEYS[entry.kind]) for path, entry in state.items()}


def _ask_child(
    task: Task, given: tuple[Path, Path, Path], private: Path, sandbox: Sandbox, stopping: Stopping
) -> Report:
    submission, sources, earlier = given
    with scratch() as folder:
        answer, errors = folder / "answer.json", folder / "errors.txt"
        try:
            with errors.open("wb") as stderr:  # what it says is neither trusted nor held in memory
                child = subprocess.Popen(
                    command("child", task.folder, submission, sources, private, answer, earlier),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    env=dict(environment(task, sandbox)),
                    cwd=folder,
                    start_new_session=True,  # Ctrl-C is for the harness; a grader that it ends would look like a fault
                )
            _await(child, task.config.grading_minutes * 60, stopping)
        except subprocess.TimeoutExpired as error:
            raise TaskFault(f"{task.name}/grade.py took over {task.config.grading_minutes:g} minutes") from error
        if child.returncode != 0 or not answer.is_file():
            raise TaskFault(f"{task.name}/grade.py failed: {_last_words(errors, child.returncode)}")
        try:
            return Report.model_validate_json(answer.read_bytes())
        except ValidationError as error:
            raise TaskFault(f"{task.name}/grade.py gave an answer that is none: {error}") from error


def command(module: str, *paths: Path) -> list[str]:
    """How a grader's process is started: it dies with us, however we die."""
    python = [sys.executable, "-P", "-m", f"mlagentbench.grading.{module}"]
    return ["setpriv", "--pdeathsig", "KILL", "--", *python, *map(str, paths)]


def _await(child: "subprocess.Popen[bytes]", seconds: float, stopping: Stopping) -> None:
    """Until it is done; it does not outlive anybody's patience, nor somebody who wants to stop."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            try:
                child.wait(LOOK)
                return
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    raise
            stopping.heed()
    except BaseException:
        child.kill()
        child.wait()
        raise


def environment(task: Task, sandbox: Sandbox) -> Iterator[tuple[str, str]]:
    """The few variables that a grader may see; tokens are not among them."""
    names = ("PATH", "HOME", *sandbox.needs)
    yield from ((name, os.environ[name]) for name in names if name in os.environ)
    yield "MLAGENTBENCH_HOME", str(home())  # which other variables, or the folder that we are in, may have decided
    yield "LANG", "C.UTF-8"
    yield "PYTHONPATH", str(PACKAGE)
    yield "PYTHONDONTWRITEBYTECODE", "1"
    settings = {"runtime": task.config.runtime, "sandbox": sandbox.name, "gpu": sandbox.gpu}
    yield "MLAGENTBENCH_GRADING", json.dumps(settings)


def _last_words(errors: Path, code: int) -> str:
    with errors.open("rb") as file:
        file.seek(max(0, errors.stat().st_size - 4000))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{lines[-1][:500]} ({how})" if lines else how
