"""Grades an agent's submission in a process that shares nothing with the agent."""

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from mlagentbench.errors import InvalidSubmission
from mlagentbench.grading import executed_scripts
from mlagentbench.grading.run_grader import Grade, run_grader
from mlagentbench.grading.script_outputs import find_unscripted_outputs
from mlagentbench.preparation.prepare import PreparedData
from mlagentbench.records import Step
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.sandbox.selection import choose_unprivileged_uid
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.stop_token import StopToken
from mlagentbench.task import Task
from mlagentbench.workspace.manifest import State
from mlagentbench.workspace.store import Store

OWNER_ACCESS_BITS = {"file": 0o600, "folder": 0o700, "link": 0}


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
    state = store.state(step)
    with temporary_dir() as folder:
        submission = _export_submission(task, store, step, state, folder)
        if isinstance(submission, InvalidSubmission):
            return Grade(invalid=str(submission))
        sources = _export_sources(task, store, step, state, folder)
        (earlier := folder / "earlier").mkdir()
        scripts = _export_executed_scripts(task, store, steps, folder / "contents", earlier)
        paths = {"submission": submission, "sources": sources, "earlier": earlier}
        report = run_grader(task, data.private, sandbox, paths, folder, stop_token or StopToken())
    violations = report.violations
    exports_only_scripts = task.config.submission != "." and task.has_rules
    if exports_only_scripts and executed_scripts.has_too_many_scripts(state):
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
        report = run_grader(task, data.private, sandbox, {"submission": submission}, folder, StopToken())
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


def _export_submission(
    task: Task, store: Store, step: int, state: State, folder: Path
) -> Path | InvalidSubmission:
    """Write a fresh copy of the submission below `folder`, or say why there is none."""
    name = task.config.submission
    (target := folder / "submission").mkdir()
    if name == ".":
        store.restore(step, target, choose_unprivileged_uid("grading"), _with_owner_access(state))
        return target
    entry = state.get(name)
    if entry is None:
        return InvalidSubmission(f"{name} is missing")
    if entry.kind != "file":
        return InvalidSubmission(f"{name} is a {entry.kind}, not a file")
    store.export_entry(step, name, entry, target / Path(name).name)
    return target / Path(name).name


def _export_sources(task: Task, store: Store, step: int, state: State, folder: Path) -> Path:
    """Write the scripts next to a submission that is a file; a submission that is a folder has them."""
    if task.config.submission == ".":
        return folder / "submission"
    (sources := folder / "sources").mkdir()
    scripts = executed_scripts.find_scripts(state)
    for path, script in islice(scripts.items(), executed_scripts.MAX_SCRIPTS):
        executed_scripts.export_script(store, step, path, script, sources / path)
    return sources


def _with_owner_access(state: State) -> State:
    """Give the owner access to everything: a grader that is not root would crash on what an agent locked."""
    return {
        path: entry._replace(mode=entry.mode | OWNER_ACCESS_BITS[entry.kind]) for path, entry in state.items()
    }
