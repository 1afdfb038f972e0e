"""Anytime curves: grades the submission after every step of finished runs, each distinct submission once."""

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
from mlagentbench.grading.verdict import judge_score
from mlagentbench.records import Record
from mlagentbench.runner.folder import GRADES_FILE
from mlagentbench.runner.setup import Setup, find_changed_inputs, restore_setup
from mlagentbench.system.journal import Journal
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.workspace.manifest import Entry
from mlagentbench.workspace.store import Store


class StepGrade(Record):
    """A line of grades.jsonl: the grade of the workspace after a step; step 0 is the initial workspace.

    The key identifies what was graded: the hashes of grader, data and submission.
    """

    step: int
    score: float | None = None
    invalid: str = ""
    key: str


class CurvePoint(Record):
    """One step of a curve: values after the step, and the best so far; None while invalid or unknown."""

    step: int
    seconds: float
    score: float | None
    improvement: float | None
    best: float | None  # best improvement so far
    progress: float | None = None
    best_progress: float | None = None


def read_step_grades(run: Run, own_grader_only: bool = True) -> tuple[StepGrade, ...]:
    """The latest grade of each step, in order; empty if the steps were never graded.

    Args:
        run: The run whose grades.jsonl is read.
        own_grader_only: Ignore grades by another version of the grader or of the data than the run had.

    Raises:
        Fault: A line of grades.jsonl is damaged.
    """
    prefix = f"{run.spec.hashes.grader}:{run.spec.hashes.data}:" if own_grader_only else ""
    grades = {grade.step: grade for grade in _read_grades(run) if grade.key.startswith(prefix)}
    return tuple(grades[step] for step in sorted(grades))


def _read_grades(run: Run) -> Iterator[StepGrade]:
    path = run.folder.path / GRADES_FILE
    for number, (line, _) in enumerate(Journal(path).lines(), 1):
        try:
            yield StepGrade.model_validate_json(line)
        except ValidationError as error:
            raise Fault(f"{path}: line {number} is damaged. Remove the file and grade again.") from error


def build_curve(run: Run, grades: Sequence[StepGrade]) -> tuple[CurvePoint, ...]:
    """The anytime curve of a run from its step grades; empty if it has none or no baseline is known."""
    if not run.spec.baseline:
        return ()
    clocks = {step.number: step.clock for step in run.steps} if grades else {}
    points: list[CurvePoint] = []
    best: float | None = None
    best_progress: float | None = None
    for grade in grades:
        verdict = judge_score(grade.score, run.spec) if grade.score is not None else None
        improvement, progress = (verdict.improvement, verdict.progress) if verdict else (None, None)
        best, best_progress = _larger(best, improvement), _larger(best_progress, progress)
        points.append(
            CurvePoint(
                step=grade.step,
                seconds=clocks.get(grade.step, 0.0),
                score=grade.score,
                improvement=improvement,
                best=best,
                progress=progress,
                best_progress=best_progress,
            )
        )
    return tuple(points)


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def average_curves(
    curves: Sequence[Sequence[CurvePoint]], axis: Literal["step", "seconds"], at: Sequence[float]
) -> list[float]:
    """Mean best improvement so far of several curves at each position.

    Before its first valid submission a curve counts as 0; after its end it keeps its last value.
    """
    return [sum(_best_at(points, axis, position) for points in curves) / len(curves) for position in at]


def _best_at(points: Sequence[CurvePoint], axis: str, position: float) -> float:
    values = [point.best for point in points if getattr(point, axis) <= position]
    return values[-1] or 0.0 if values else 0.0


SnapshotVersion = tuple[int, ...]


@dataclass
class UngradedSubmission:
    """One distinct submission, and every step of every run that produced it.

    `entry` is the submission if it is a file: looking it up again would read the whole manifest.
    """

    store: Store
    step: int
    entry: Entry | None
    occurrences: list[tuple[Run, int, SnapshotVersion]] = field(default_factory=list)


def grade_steps(runs: Sequence[Run], progress: ProgressCallback) -> list[str]:
    """Grade every step that has no grade yet; equal submissions in the same setting are graded once.

    A submission on which the grader fails gets no grade. The faults are reported and returned.
    """
    settings: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in runs:
        spec = run.spec
        settings[spec.task, spec.edition, spec.hashes.data, spec.sandbox, spec.gpu].append(run)
    faults: list[str] = []
    for group in settings.values():
        setup = restore_setup(group[0].spec, progress)
        _grade_all(setup, _collect_ungraded(group, setup, progress), faults)
    for fault in faults:
        progress(fault)
    return faults


def _collect_ungraded(
    runs: Sequence[Run], setup: Setup, progress: ProgressCallback
) -> dict[str, UngradedSubmission]:
    """Submissions without a grade, by key. A grade in one run folder is never trusted for another run."""
    ungraded: dict[str, UngradedSubmission] = {}
    for run in runs:
        if changed := find_changed_inputs(run.spec, setup):
            progress(
                f"note: the {' and '.join(changed)} changed since {run.name} started;"
                " the step grades are not comparable with its score"
            )
        version = _snapshot_version(run)
        store = run.folder.open_store(setup.data, writable=False)
        graded = {grade.step: grade.key for grade in _read_grades(run)}
        for step, (key, entry) in enumerate(_find_submissions(run, store, setup)):
            if graded.get(step) != key:
                submission = ungraded.setdefault(key, UngradedSubmission(store, step, entry))
                submission.occurrences.append((run, step, version))
    return ungraded


def _snapshot_version(run: Run) -> SnapshotVersion:
    """Changes when the run is resumed or rewound."""
    manifest = run.folder.path / "snapshots" / "manifest.jsonl"
    if not manifest.exists():
        return ()
    stat = manifest.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _find_submissions(run: Run, store: Store, setup: Setup) -> Iterator[tuple[str, Entry | None]]:
    """What the score depends on, and the submitted file, for the initial workspace and after each step."""
    path, inputs = setup.task.config.submission, setup.hashes
    history = store.history(path) if path != "." else {}
    entry: Entry | None = None
    for step in range(len(run.folder.steps()) + 1):
        if path == ".":
            submission = store.tree_hash(step)
        else:
            entry = history.get(step, entry)
            submission = "missing" if entry is None else entry.hash if entry.kind == "file" else entry.kind
        is_file = entry is not None and entry.kind == "file"
        yield f"{inputs.grader}:{inputs.data}:{submission}", entry if is_file else None


def _grade_all(setup: Setup, ungraded: dict[str, UngradedSubmission], faults: list[str]) -> None:
    """Grade and store all submissions, one worker per core, or one at a time where run time is measured."""
    queue = list(ungraded.items())
    cores = 1 if setup.task.config.submission == "." else len(os.sched_getaffinity(0))

    def work() -> None:
        with open_forking_grader(setup.task, setup.data, setup.sandbox) as grader:
            while queue:
                with suppress(IndexError):  # another worker took the last one
                    _grade_submission(grader, *queue.pop(), faults)

    count = min(cores, len(queue))
    with ThreadPoolExecutor(max(count, 1)) as pool:
        try:
            for worker in [pool.submit(work) for _ in range(count)]:
                worker.result()
        finally:
            queue.clear()  # after an interrupt, workers finish their current submission only


def _grade_submission(
    grader: ForkingGrader, key: str, ungraded: UngradedSubmission, faults: list[str]
) -> None:
    try:
        if ungraded.entry:
            outcome = grader.grade_entry(ungraded.store, ungraded.step, ungraded.entry)
        else:
            outcome = grader.grade(ungraded.store, ungraded.step)
    except Fault as fault:
        run, step, _ = ungraded.occurrences[0]
        faults.append(f"{run.name}, step {step}: {fault}")
        return
    for run, step, version in ungraded.occurrences:
        grade = StepGrade(step=step, score=outcome.score, invalid=outcome.invalid, key=key)
        problem = _store_grade(run, grade, version)
        if problem and problem not in faults:
            faults.append(problem)


def _store_grade(run: Run, grade: StepGrade, version: SnapshotVersion) -> str:
    """Append a grade to the run, unless the run changed since it was read; returns the problem, or ''."""
    try:
        with run.folder.lock_shared():
            if _snapshot_version(run) != version:
                return f"{run.name}: the run was resumed while its steps were graded. Grade it again."
            Journal(run.folder.path / GRADES_FILE).append(grade.model_dump_json())
    except UsageError as error:
        return f"{run.name}: {str(error).removesuffix('.')}. Grade it again when that run has finished."
    return ""
