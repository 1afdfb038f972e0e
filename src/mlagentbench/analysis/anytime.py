"""How a run's score moved: every step's submission graded afterwards, each distinct one once, kept beside the run."""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from mlagentbench.analysis.runs import Run
from mlagentbench.errors import Fault, UsageError
from mlagentbench.grading.forking_grader import ForkingGrader, open_forking_grader
from mlagentbench.grading.verdict import compute_verdict
from mlagentbench.records import Record
from mlagentbench.runner.folder import GRADES_FILE
from mlagentbench.runner.setup import Setup, find_changed_inputs, restore_setup
from mlagentbench.system.journal import Journal
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.workspace.store import Store


class StepGrade(Record):
    """A line of grades.jsonl: the workspace after a step (0: before the first) as the grader sees it.

    The key says of what: grader, data and submission, by hash.
    """

    step: int
    score: float | None = None
    invalid: str = ""
    key: str


class CurvePoint(Record):
    """One step of a curve: improvement of the state that the step left, and the best so far; none while invalid."""

    step: int
    seconds: float
    score: float | None
    improvement: float | None
    best: float | None


def read_step_grades(run: Run, own_grader_only: bool = True) -> tuple[StepGrade, ...]:
    """What the run's own grader, or the last that was asked, said of each step, in order; empty if nobody asked."""
    ours = f"{run.spec.hashes.grader}:{run.spec.hashes.data}:" if own_grader_only else ""
    found = {grade.step: grade for grade in _read_grades(run) if grade.key.startswith(ours)}
    return tuple(found[step] for step in sorted(found))


def _read_grades(run: Run) -> Iterator[StepGrade]:
    path = run.folder.path / GRADES_FILE
    for number, (line, _) in enumerate(Journal(path).lines(), 1):
        try:
            yield StepGrade.model_validate_json(line)
        except ValidationError as error:
            raise Fault(f"{path}: line {number} is damaged; remove the file and grade again") from error


def build_curve(run: Run) -> tuple[CurvePoint, ...]:
    """The anytime curve; empty if steps were never graded, or if no baseline is known."""
    baseline, better = run.spec.baseline, run.spec.better
    grades = read_step_grades(run) if baseline else ()
    clocks = {step.number: step.clock for step in run.folder.steps()} if grades else {}
    points: list[CurvePoint] = []
    best: float | None = None
    for grade in grades:
        assert baseline
        improvement = (
            None if grade.score is None else compute_verdict(grade.score, baseline, better).improvement
        )
        if improvement is not None:
            best = improvement if best is None else max(best, improvement)
        seconds = clocks.get(grade.step, 0.0)
        points.append(
            CurvePoint(
                step=grade.step, seconds=seconds, score=grade.score, improvement=improvement, best=best
            )
        )
    return tuple(points)


def average_curves(
    curves: Sequence[Sequence[CurvePoint]], axis: Literal["step", "seconds"], at: Sequence[float]
) -> list[float]:
    """Mean best improvement so far of several curves; nothing valid yet is no improvement, and an end lasts."""
    return [sum(_best_at(points, axis, place) for points in curves) / len(curves) for place in at]


def _best_at(points: Sequence[CurvePoint], over: str, place: float) -> float:
    reached = [point.best for point in points if getattr(point, over) <= place]
    return reached[-1] or 0.0 if reached else 0.0


SnapshotVersion = tuple[int, ...]


@dataclass
class UngradedSubmission:
    """One submission, and every step of every run that left it."""

    store: Store
    step: int
    occurrences: list[tuple[Run, int, SnapshotVersion]] = field(default_factory=list)


def grade_steps(runs: Sequence[Run], say: ProgressCallback) -> list[str]:
    """Grade every step of these runs that was not graded yet; equal submissions of one setting are graded once.

    A submission on which the grader fails is left without a grade: what went wrong is said, and returned.
    """
    settings: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in runs:
        spec = run.spec
        settings[spec.task, spec.edition, spec.hashes.data, spec.sandbox, spec.gpu].append(run)
    faults: list[str] = []
    for group in settings.values():
        setup = restore_setup(group[0].spec, say)
        _grade_all(setup, _collect_ungraded(group, setup, say), faults)
    for fault in faults:
        say(fault)
    return faults


def _collect_ungraded(
    runs: Sequence[Run], setup: Setup, say: ProgressCallback
) -> dict[str, UngradedSubmission]:
    """By key; what a run folder says of its own steps is not believed of those of others."""
    found: dict[str, UngradedSubmission] = {}
    for run in runs:
        if differing := find_changed_inputs(run.spec, setup):
            words = f"the {' and '.join(differing)} changed since {run.name} began"
            say(f"note: {words}; these are not the scores that it would have had")
        mark = _snapshot_version(run)
        store = run.folder.open_store(setup.data, writable=False)
        done = {grade.step: grade.key for grade in _read_grades(run)}
        for step, key in enumerate(_submission_keys(run, store, setup)):
            if done.get(step) != key:
                found.setdefault(key, UngradedSubmission(store, step)).occurrences.append((run, step, mark))
    return found


def _snapshot_version(run: Run) -> SnapshotVersion:
    """What is another once anybody has gone on with the run, or done some of it over."""
    manifest = run.folder.path / "snapshots" / "manifest.jsonl"
    if not manifest.exists():
        return ()
    found = manifest.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _submission_keys(run: Run, store: Store, setup: Setup) -> Iterator[str]:
    """Of the workspace before the first step and after each: what its score depends on."""
    path, submission = setup.task.config.submission, ""
    changes = set(store.steps_changing(path)) if path != "." else set()
    for step in range(len(run.folder.steps()) + 1):
        if path == ".":
            submission = store.tree_hash(step)
        elif step in changes or not step:
            entry = store.state(step).get(path)
            submission = "missing" if entry is None else entry.hash if entry.kind == "file" else entry.kind
        yield f"{setup.hashes.grader}:{setup.hashes.data}:{submission}"


def _grade_all(setup: Setup, ungraded: dict[str, UngradedSubmission], faults: list[str]) -> None:
    """Grade and write down each, on as many cores as there are; code that is timed runs alone."""
    left = list(ungraded.items())
    cores = 1 if setup.task.config.submission == "." else len(os.sched_getaffinity(0))

    def work() -> None:
        with open_forking_grader(setup.task, setup.data, setup.sandbox) as grader:
            while left:
                with suppress(IndexError):  # another was quicker
                    _grade_submission(grader, *left.pop(), faults)

    count = min(cores, len(left))
    with ThreadPoolExecutor(max(count, 1)) as pool:
        try:
            for worker in [pool.submit(work) for _ in range(count)]:
                worker.result()
        finally:
            left.clear()  # whoever interrupts does not wait for all


def _grade_submission(
    grader: ForkingGrader, key: str, ungraded: UngradedSubmission, faults: list[str]
) -> None:
    try:
        found = grader.grade(ungraded.store, ungraded.step)
    except Fault as fault:
        run, step, _ = ungraded.occurrences[0]
        faults.append(f"{run.name}, step {step}: {fault}")
        return
    for run, step, mark in ungraded.occurrences:
        grade = StepGrade(step=step, score=found.score, invalid=found.invalid, key=key)
        if trouble := _store_grade(run, grade, mark):
            faults.extend({trouble}.difference(faults))


def _store_grade(run: Run, grade: StepGrade, mark: SnapshotVersion) -> str:
    """Write a grade down, unless it may be of a history that is no more; why, if so."""
    try:
        with run.folder.lock_shared():
            if _snapshot_version(run) != mark:
                return f"{run.name}: somebody went on with it while it was graded; grade it again"
            Journal(run.folder.path / GRADES_FILE).append(grade.model_dump_json())
    except UsageError as error:
        return f"{run.name}: {error}; grade it when that has ended"
    return ""
