"""How a run's score moved: every step's submission graded afterwards, each distinct one once, kept beside the run."""

from collections.abc import Sequence

from pydantic import ValidationError

from mlagentbench.errors import Fault
from mlagentbench.grading.verdict import judge
from mlagentbench.journal import Journal
from mlagentbench.preparation.download import Say
from mlagentbench.records import Record
from mlagentbench.reports.runs import Run
from mlagentbench.runner.folder import GRADES


class StepGrade(Record):
    """A line of grades.jsonl: the workspace after a step (0: before the first) as the grader sees it.

    The key says of what: grader, data and submission, by hash. Neither score nor word means that the grader failed.
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


def step_grades(run: Run) -> tuple[StepGrade, ...]:
    """What the run's own grader said of each step, in order; empty if nobody asked it."""
    ours, found = f"{run.spec.hashes.grader}:{run.spec.hashes.data}:", dict[int, StepGrade]()
    for number, (line, _) in enumerate(Journal(run.folder.path / GRADES).lines(), 1):
        try:
            grade = StepGrade.model_validate_json(line)
        except ValidationError as error:
            raise Fault(
                f"{run.folder.path / GRADES}: line {number} is damaged; remove the file and grade again"
            ) from error
        if grade.key.startswith(ours):
            found[grade.step] = grade
    return tuple(found[step] for step in sorted(found))


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


def grade_steps(runs: Sequence[Run], say: Say) -> None:
    """Grade every step of these runs that was not graded yet; equal submissions of one setting are graded once."""
    from mlagentbench.reports.asking import grade_missing

    grade_missing(runs, say)
