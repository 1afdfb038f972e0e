"""How a run's score moved: every step's submission graded afterwards, each distinct one once, kept beside the run."""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from mlagentbench.errors import Fault, UsageError
from mlagentbench.grading.many import Graders, graders
from mlagentbench.grading.verdict import judge
from mlagentbench.journal import Journal
from mlagentbench.preparation.download import Say
from mlagentbench.records import Record
from mlagentbench.reports.runs import Run
from mlagentbench.runner.folder import GRADES
from mlagentbench.runner.setup import Setup, changed, set_up_again
from mlagentbench.workspace.store import Store


class StepGrade(Record):
    """A line of grades.jsonl: the workspace after a step (0: before the first) as the grader sees it.

    The key says of what: grader, data and submission, by hash.
    """

    step: int
    score: float | None = None
    invalid: str = ""
    key: str


class Point(Record):
    """One step of a curve: improvement of the state that the step left, and the best so far; none while invalid."""

    step: int
    seconds: float
    score: float | None
    improvement: float | None
    best: float | None


def step_grades(run: Run, own: bool = True) -> tuple[StepGrade, ...]:
    """What the run's own grader, or the last that was asked, said of each step, in order; empty if nobody asked."""
    ours = f"{run.spec.hashes.grader}:{run.spec.hashes.data}:" if own else ""
    found = {grade.step: grade for grade in _lines(run) if grade.key.startswith(ours)}
    return tuple(found[step] for step in sorted(found))


def _lines(run: Run) -> Iterator[StepGrade]:
    path = run.folder.path / GRADES
    for number, (line, _) in enumerate(Journal(path).lines(), 1):
        try:
            yield StepGrade.model_validate_json(line)
        except ValidationError as error:
            raise Fault(f"{path}: line {number} is damaged; remove the file and grade again") from error


def curve(run: Run) -> tuple[Point, ...]:
    """The anytime curve; empty if steps were never graded, or if no baseline is known."""
    baseline, better = run.spec.baseline, run.spec.better
    grades = step_grades(run) if baseline else ()
    clocks = {step.number: step.clock for step in run.folder.steps()} if grades else {}
    points: list[Point] = []
    best: float | None = None
    for grade in grades:
        assert baseline
        improvement = None if grade.score is None else judge(grade.score, baseline, better).improvement
        if improvement is not None:
            best = improvement if best is None else max(best, improvement)
        seconds = clocks.get(grade.step, 0.0)
        points.append(Point(step=grade.step, seconds=seconds, score=grade.score, improvement=improvement, best=best))
    return tuple(points)


def average(curves: Sequence[Sequence[Point]], over: Literal["step", "seconds"], at: Sequence[float]) -> list[float]:
    """Mean best improvement so far of several curves; nothing valid yet is no improvement, and an end lasts."""
    return [sum(_best(points, over, place) for points in curves) / len(curves) for place in at]


def _best(points: Sequence[Point], over: str, place: float) -> float:
    reached = [point.best for point in points if getattr(point, over) <= place]
    return reached[-1] or 0.0 if reached else 0.0


Mark = tuple[int, ...]


@dataclass
class Ungraded:
    """One submission, and every step of every run that left it."""

    store: Store
    step: int
    steps: list[tuple[Run, int, Mark]] = field(default_factory=list)


def grade_steps(runs: Sequence[Run], say: Say) -> list[str]:
    """Grade every step of these runs that was not graded yet; equal submissions of one setting are graded once.

    A submission on which the grader fails is left without a grade: what went wrong is said, and returned.
    """
    settings: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in runs:
        spec = run.spec
        settings[spec.task, spec.edition, spec.hashes.data, spec.sandbox, spec.gpu].append(run)
    faults: list[str] = []
    for group in settings.values():
        setup = set_up_again(group[0].spec, say)
        _grade_all(setup, _ungraded(group, setup, say), faults)
    for fault in faults:
        say(fault)
    return faults


def _ungraded(runs: Sequence[Run], setup: Setup, say: Say) -> dict[str, Ungraded]:
    """By key; what a run folder says of its own steps is not believed of those of others."""
    found: dict[str, Ungraded] = {}
    for run in runs:
        if differing := changed(run.spec, setup):
            words = f"the {' and '.join(differing)} changed since {run.name} began"
            say(f"note: {words}; these are not the scores that it would have had")
        mark = _mark(run)
        store = run.folder.store(setup.data, writable=False)
        done = {grade.step: grade.key for grade in _lines(run)}
        for step, key in enumerate(_keys(run, store, setup)):
            if done.get(step) != key:
                found.setdefault(key, Ungraded(store, step)).steps.append((run, step, mark))
    return found


def _mark(run: Run) -> Mark:
    """What is another once anybody has gone on with the run, or done some of it over."""
    manifest = run.folder.path / "snapshots" / "manifest.jsonl"
    if not manifest.exists():
        return ()
    found = manifest.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _keys(run: Run, store: Store, setup: Setup) -> Iterator[str]:
    """Of the workspace before the first step and after each: what its score depends on."""
    path, submission = setup.task.config.submission, ""
    changes = set(store.history(path)) if path != "." else set()
    for step in range(len(run.folder.steps()) + 1):
        if path == ".":
            submission = store.tree_hash(step)
        elif step in changes or not step:
            entry = store.state(step).get(path)
            submission = "missing" if entry is None else entry.hash if entry.kind == "file" else entry.kind
        yield f"{setup.hashes.grader}:{setup.hashes.data}:{submission}"


def _grade_all(setup: Setup, ungraded: dict[str, Ungraded], faults: list[str]) -> None:
    """Grade and write down each, on as many cores as there are; code that is timed runs alone."""
    left = list(ungraded.items())
    cores = 1 if setup.task.config.submission == "." else len(os.sched_getaffinity(0))

    def work() -> None:
        with graders(setup.task, setup.data, setup.sandbox) as grader:
            while left:
                with suppress(IndexError):  # another was quicker
                    _grade(grader, *left.pop(), faults)

    count = min(cores, len(left))
    with ThreadPoolExecutor(max(count, 1)) as pool:
        try:
            for worker in [pool.submit(work) for _ in range(count)]:
                worker.result()
        finally:
            left.clear()  # whoever interrupts does not wait for all


def _grade(grader: Graders, key: str, ungraded: Ungraded, faults: list[str]) -> None:
    try:
        found = grader.grade(ungraded.store, ungraded.step)
    except Fault as fault:
        run, step, _ = ungraded.steps[0]
        faults.append(f"{run.name}, step {step}: {fault}")
        return
    for run, step, mark in ungraded.steps:
        grade = StepGrade(step=step, score=found.score, invalid=found.invalid, key=key)
        if trouble := _keep(run, grade, mark):
            faults.extend({trouble}.difference(faults))


def _keep(run: Run, grade: StepGrade, mark: Mark) -> str:
    """Write a grade down, unless it may be of a history that is no more; why, if so."""
    try:
        with run.folder.still():
            if _mark(run) != mark:
                return f"{run.name}: somebody went on with it while it was graded; grade it again"
            Journal(run.folder.path / GRADES).append(grade.model_dump_json())
    except UsageError as error:
        return f"{run.name}: {error}; grade it when that has ended"
    return ""
