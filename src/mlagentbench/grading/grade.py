"""Grades an agent's submission in a process that shares nothing with the agent."""

import json
import os
import select
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
from mlagentbench.formatting import last_lines, strip_control_chars
from mlagentbench.grading import executed_scripts
from mlagentbench.grading.script_outputs import find_unscripted_outputs
from mlagentbench.preparation.prepare import PreparedData
from mlagentbench.records import Record, Step
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.sandbox.selection import choose_unprivileged_uid
from mlagentbench.system.cache import cache_dir, temporary_dir
from mlagentbench.system.spawn import die_with_parent
from mlagentbench.system.stop_token import POLL_INTERVAL_S, StopToken
from mlagentbench.task import Task
from mlagentbench.workspace.manifest import State
from mlagentbench.workspace.store import Store

SOURCE_ROOT = Path(__file__).parents[2]
OWNER_ACCESS_BITS = {"file": 0o600, "folder": 0o700, "link": 0}
MAX_STDERR_BYTES = 4000  # read from the end of a failed grader's output
MAX_ERROR_CHARS = 500


class Grade(Record):
    """The grader's result for one submission: a score, or why the submission is invalid."""

    score: float | None = None
    invalid: str = ""
    violations: tuple[str, ...] = ()
    seconds: float = 0.0


class GraderReport(Grade):
    """What the grader process writes: the grade, and the violations of each script that ran earlier."""

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
    """Grade the workspace as it was after a step.

    Args:
        task: The task whose grade.py is called.
        data: The prepared data with the hidden answers.
        store: The snapshots of the workspace.
        step: The step whose state is graded.
        sandbox: Where the grader runs a submission's code.
        steps: The steps up to there; with them, rule violations in the record are found as well.
        stop_token: Interrupts grading when a stop is requested.

    Raises:
        TaskFault: If the grader crashes, hangs or returns no number. This is never a score of zero.
    """
    started = time.monotonic()
    with _export_submission(task, store, step) as submission:
        if isinstance(submission, InvalidSubmission):
            return Grade(invalid=str(submission))
        with temporary_dir() as folder:
            (earlier := folder / "earlier").mkdir()
            scripts = _export_executed_scripts(task, store, steps, folder / "contents", earlier)
            paths = (*submission, earlier)
            report = _run_grader(task, paths, data.private, sandbox, stop_token or StopToken())
    violations = report.violations
    exports_only_scripts = task.config.submission != "." and task.has_rules
    if exports_only_scripts and executed_scripts.has_too_many_scripts(store.state(step)):
        violations = (*violations, executed_scripts.TOO_MANY_SCRIPTS)
    violations = (*violations, *executed_scripts.format_violations(scripts, report.earlier, violations))
    if steps:
        violations = (*violations, *find_unscripted_outputs(store, steps, task.config.script_outputs))
    seconds = round(time.monotonic() - started, 3)
    return Grade(score=report.score, invalid=report.invalid, violations=violations, seconds=seconds)


def grade_path(task: Task, data: PreparedData, submission: Path, sandbox: Sandbox) -> Grade:
    """Grade a file, or a folder if the task asks for one, that belongs to no run; rules are not checked.

    Raises:
        TaskFault: If the grader crashes, hangs or returns no number.
    """
    with temporary_dir() as folder:
        for name in ("sources", "earlier"):
            (folder / name).mkdir()
        paths = (submission, folder / "sources", folder / "earlier")
        report = _run_grader(task, paths, data.private, sandbox, StopToken())
    return Grade(score=report.score, invalid=report.invalid)


def _export_executed_scripts(
    task: Task, store: Store, steps: Sequence[Step], contents: Path, target: Path
) -> list[executed_scripts.ExecutedScript]:
    """Write each script that ran before to a numbered folder below `target`, if the task has rules."""
    exporter = executed_scripts.ScriptExporter(store, contents)
    if not task.has_rules:
        return []
    scripts = executed_scripts.find_executed_scripts(store, steps, task.config.submission)
    return [exporter.export(script, target / str(number)) for number, script in enumerate(scripts)]


@contextmanager
def _export_submission(
    task: Task, store: Store, step: int
) -> Iterator[tuple[Path, Path] | InvalidSubmission]:
    """Provide fresh copies of the submission and of the scripts next to it, or why there is no submission."""
    with temporary_dir() as folder:
        name = task.config.submission
        state = store.state(step)
        if name == ".":
            target = folder / "submission"
            target.mkdir()
            store.restore(step, target, choose_unprivileged_uid("grading"), _with_owner_access(state))
            yield target, target
            return
        entry = state.get(name)
        if entry is None:
            yield InvalidSubmission(f"{name} is missing")
        elif entry.kind != "file":
            yield InvalidSubmission(f"{name} is a {entry.kind}, not a file")
        else:
            target, sources = folder / Path(name).name, folder / "sources"
            store.export(step, name, target)
            sources.mkdir()
            scripts = executed_scripts.find_scripts(state)
            for path, script in islice(scripts.items(), executed_scripts.MAX_SCRIPTS):
                executed_scripts.export_script(store, step, path, script, sources / path)
            yield target, sources


def _with_owner_access(state: State) -> State:
    """Give the owner access to everything: a grader that is not root would crash on what an agent locked."""
    return {
        path: entry._replace(mode=entry.mode | OWNER_ACCESS_BITS[entry.kind]) for path, entry in state.items()
    }


def _run_grader(
    task: Task, paths: tuple[Path, Path, Path], private: Path, sandbox: Sandbox, stop_token: StopToken
) -> GraderReport:
    submission, sources, earlier = paths
    with temporary_dir() as folder:
        answer, errors = folder / "answer.json", folder / "errors.txt"
        command = grader_command("grader_process", task.folder, submission, sources, private, answer, earlier)
        try:
            with errors.open("wb") as stderr:  # to a file: the output is untrusted and may be large
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    env=dict(grader_environment(task, sandbox)),
                    cwd=folder,
                    start_new_session=True,  # a grader killed by Ctrl-C would look like a fault
                )
            _wait_or_kill(child, task.config.grading_minutes * 60, stop_token)
        except subprocess.TimeoutExpired as error:
            limit = f"{task.config.grading_minutes:g} minutes"
            raise TaskFault(f"{task.name}/grade.py took longer than {limit}") from error
        if child.returncode != 0 or not answer.is_file():
            reason, details = _describe_failure(errors, child.returncode)
            raise TaskFault(f"{task.name}/grade.py failed: {reason}", details)
        try:
            return GraderReport.model_validate_json(answer.read_bytes())
        except ValidationError as error:
            raise TaskFault(f"{task.name}/grade.py wrote an invalid answer: {error}") from error


def grader_command(module: str, *paths: Path) -> list[str]:
    """Build the command of a grader process, which the kernel kills when the harness dies."""
    return die_with_parent([sys.executable, "-P", "-m", f"mlagentbench.grading.{module}", *map(str, paths)])


def _wait_or_kill(child: "subprocess.Popen[bytes]", seconds: float, stop_token: StopToken) -> None:
    """Wait for the process; kill it on timeout, on a stop request and on any other exception."""
    deadline = time.monotonic() + seconds
    pidfd = os.pidfd_open(child.pid)
    try:
        exit_poll = select.poll()  # returns at the exit; Popen.wait(timeout) may notice it 50 ms later
        exit_poll.register(pidfd, select.POLLIN)
        while not exit_poll.poll(POLL_INTERVAL_S * 1000):
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(child.args, seconds)
            stop_token.raise_if_requested()
        child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise
    finally:
        os.close(pidfd)


def grader_environment(task: Task, sandbox: Sandbox) -> Iterator[tuple[str, str]]:
    """Yield the few environment variables that a grader may see; tokens are not among them."""
    names = ("PATH", "HOME", *sandbox.required_variables)
    yield from ((name, os.environ[name]) for name in names if name in os.environ)
    # Resolved here, because it may depend on other variables or on the working directory.
    yield "MLAGENTBENCH_HOME", str(cache_dir())
    yield "LANG", "C.UTF-8"
    yield "PYTHONPATH", str(SOURCE_ROOT)
    yield "PYTHONDONTWRITEBYTECODE", "1"
    settings = {"runtime": task.config.runtime, "sandbox": sandbox.name, "gpu": sandbox.gpu}
    yield "MLAGENTBENCH_GRADING", json.dumps(settings)


def _describe_failure(errors: Path, code: int) -> tuple[str, str]:
    """Why the grader failed in one line, and the lines that it printed before."""
    with errors.open("rb") as file:
        file.seek(max(0, errors.stat().st_size - MAX_STDERR_BYTES))
        before, _, last = file.read().decode("utf-8", "replace").strip().rpartition("\n")
    status = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if not last:
        return status, ""
    # An exception of grade.py is reported with its line; the exit code 1 adds nothing.
    suffix = f" ({status})" if code != 1 else ""
    return f"{strip_control_chars(last)[:MAX_ERROR_CHARS]}{suffix}", last_lines(before)
