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
from mlagentbench.grading import executed_scripts
from mlagentbench.preparation.prepare import PreparedData
from mlagentbench.records import Record, Step
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.sandbox.selection import choose_unprivileged_uid
from mlagentbench.system.cache import cache_dir, temporary_dir
from mlagentbench.system.stop_token import POLL_INTERVAL_S, StopToken
from mlagentbench.task import Task
from mlagentbench.workspace.manifest import State
from mlagentbench.workspace.store import Store

SOURCE_ROOT = Path(__file__).parents[2]
OWNER_ACCESS_BITS = {"file": 0o600, "folder": 0o700, "link": 0}


class Grade(Record):
    """What the grader says of one submission."""

    score: float | None = None
    invalid: str = ""
    violations: tuple[str, ...] = ()
    seconds: float = 0.0


class GraderReport(Grade):
    """What the grader's process writes: the grade, and what was against the rules in each script that ran before."""

    earlier: tuple[tuple[str, ...], ...] = ()


def grade(
    task: Task,
    data: PreparedData,
    store: Store,
    step: int,
    sandbox: Sandbox,
    steps: Sequence[Step] = (),
    stop_token: StopToken | None = None,
) -> Grade:
    """The grade of the workspace as it was after a step; a crash of the grader is a TaskFault, and never a zero.

    With the `steps` up to there, rules that were broken on the way are found as well.
    """
    started = time.monotonic()
    with _export_submission(task, store, step) as submission:
        if isinstance(submission, InvalidSubmission):
            return Grade(invalid=str(submission))
        with temporary_dir() as folder:
            (earlier := folder / "earlier").mkdir()
            shelf = executed_scripts.ScriptExporter(store, folder / "contents")
            found = (
                executed_scripts.find_executed_scripts(store, steps, task.config.submission)
                if task.has_rules
                else []
            )
            runs = [shelf.export(each, earlier / str(number)) for number, each in enumerate(found)]
            report = _run_grader(
                task, (*submission, earlier), data.private, sandbox, stop_token or StopToken()
            )
    whole = (
        task.config.submission == "."
        or not task.has_rules
        or not executed_scripts.has_too_many_scripts(store.state(step))
    )
    known = report.violations if whole else (*report.violations, executed_scripts.TOO_MANY_SCRIPTS)
    violations = (*known, *executed_scripts.format_violations(runs, report.earlier, known))
    seconds = round(time.monotonic() - started, 3)
    return Grade(score=report.score, invalid=report.invalid, violations=violations, seconds=seconds)


@contextmanager
def _export_submission(
    task: Task, store: Store, step: int
) -> Iterator[tuple[Path, Path] | InvalidSubmission]:
    """Fresh copies of what is graded and of the scripts beside it, or why there are none."""
    with temporary_dir() as folder:
        wanted = task.config.submission
        if wanted == ".":
            target = folder / "submission"
            target.mkdir()
            store.restore(
                step, target, choose_unprivileged_uid("grading"), _with_owner_access(store.state(step))
            )
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
            for name, script in islice(
                executed_scripts.find_scripts(state).items(), executed_scripts.MAX_SCRIPTS
            ):
                executed_scripts.export_script(store, step, name, script, sources / name)
            yield target, sources


def _with_owner_access(state: State) -> State:
    """The same, open to its owner: what an agent locked would be a crash of a grader that is not root."""
    return {
        path: entry._replace(mode=entry.mode | OWNER_ACCESS_BITS[entry.kind]) for path, entry in state.items()
    }


def _run_grader(
    task: Task, given: tuple[Path, Path, Path], private: Path, sandbox: Sandbox, stop_token: StopToken
) -> GraderReport:
    submission, sources, earlier = given
    with temporary_dir() as folder:
        answer, errors = folder / "answer.json", folder / "errors.txt"
        try:
            with errors.open("wb") as stderr:  # what it says is neither trusted nor held in memory
                child = subprocess.Popen(
                    grader_command(
                        "grader_process", task.folder, submission, sources, private, answer, earlier
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    env=dict(grader_environment(task, sandbox)),
                    cwd=folder,
                    start_new_session=True,  # Ctrl-C is for the harness; a grader that it ends would look like a fault
                )
            _wait_or_kill(child, task.config.grading_minutes * 60, stop_token)
        except subprocess.TimeoutExpired as error:
            raise TaskFault(
                f"{task.name}/grade.py took over {task.config.grading_minutes:g} minutes"
            ) from error
        if child.returncode != 0 or not answer.is_file():
            raise TaskFault(f"{task.name}/grade.py failed: {_describe_failure(errors, child.returncode)}")
        try:
            return GraderReport.model_validate_json(answer.read_bytes())
        except ValidationError as error:
            raise TaskFault(f"{task.name}/grade.py gave an answer that is none: {error}") from error


def grader_command(module: str, *paths: Path) -> list[str]:
    """How a grader's process is started: it dies with us, however we die."""
    python = [sys.executable, "-P", "-m", f"mlagentbench.grading.{module}"]
    return ["setpriv", "--pdeathsig", "KILL", "--", *python, *map(str, paths)]


def _wait_or_kill(child: "subprocess.Popen[bytes]", seconds: float, stop_token: StopToken) -> None:
    """Until it is done; it does not outlive anybody's patience, nor somebody who wants to stop."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            try:
                child.wait(POLL_INTERVAL_S)
                return
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    raise
            stop_token.raise_if_requested()
    except BaseException:
        child.kill()
        child.wait()
        raise


def grader_environment(task: Task, sandbox: Sandbox) -> Iterator[tuple[str, str]]:
    """The few variables that a grader may see; tokens are not among them."""
    names = ("PATH", "HOME", *sandbox.required_variables)
    yield from ((name, os.environ[name]) for name in names if name in os.environ)
    yield (
        "MLAGENTBENCH_HOME",
        str(cache_dir()),
    )  # which other variables, or the folder that we are in, may have decided
    yield "LANG", "C.UTF-8"
    yield "PYTHONPATH", str(SOURCE_ROOT)
    yield "PYTHONDONTWRITEBYTECODE", "1"
    settings = {"runtime": task.config.runtime, "sandbox": sandbox.name, "gpu": sandbox.gpu}
    yield "MLAGENTBENCH_GRADING", json.dumps(settings)


def _describe_failure(errors: Path, code: int) -> str:
    with errors.open("rb") as file:
        file.seek(max(0, errors.stat().st_size - 4000))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{lines[-1][:500]} ({how})" if lines else how
