"""Rule: what was submitted is worse than what the run had already reached."""

import math
from collections.abc import Iterator

from mlagentbench.agents.tuner import figure
from mlagentbench.reports.anytime import step_grades
from mlagentbench.reports.process.evidence import Evidence
from mlagentbench.reports.process.rules.base import Seen
from mlagentbench.reports.process.rules.unrepaired_error import well
from mlagentbench.words import number

TITLE = "submitted worse than its own best"
WORTH = 0.01  # of the best: a smaller loss may be noise
Reached = tuple[int, float]  # a step, and its score or its figure


def worse_than_best(evidence: Evidence) -> Iterator[Seen]:
    """By the grades of its steps if they were graded, and else by the validation figures that its scripts printed."""
    if evidence.ended and evidence.steps:
        graded = {grade.step: grade for grade in step_grades(evidence.run)}
        yield from _by_grades(evidence) if len(evidence.steps) in graded else _by_figures(evidence)


def _by_grades(evidence: Evidence) -> Iterator[Seen]:
    *before, last = [grade for grade in step_grades(evidence.run) if grade.step <= len(evidence.steps)]
    best = _best(evidence, [(grade.step, grade.score) for grade in before if grade.score is not None])
    if best is None or (last.score is None and not last.invalid):
        return
    if last.score is None or _is_worse(evidence, last.score, best[1]):
        now = "is not valid" if last.score is None else f"scores {number(last.score)}"
        state = f"Step {best[0]}" if best[0] else "The starter"
        steps = tuple(step for step in (best[0], last.step) if step)
        yield Seen(f"{state} would have scored {number(best[1])}, but what was submitted {now}.", steps)


def _by_figures(evidence: Evidence) -> Iterator[Seen]:
    ran = [step for step in evidence.steps if step.execution and well(step.execution)]
    reached = [(step.number, figure(step.observation)) for step in ran]
    reached = [(step, value) for step, value in reached if math.isfinite(value)]
    best = _best(evidence, reached[:-1])
    if best and _is_worse(evidence, reached[-1][1], best[1]) and not _still_there(evidence, best[0]):
        what = f"Step {best[0]} printed a validation figure of {number(best[1])}"
        yield Seen(f"{what}, but the last one was {number(reached[-1][1])}.", (best[0], reached[-1][0]))


def _best(evidence: Evidence, reached: list[Reached]) -> Reached | None:
    sign = 1 if evidence.run.spec.better == "higher" else -1
    return max(reached, key=lambda each: sign * each[1], default=None)


def _is_worse(evidence: Evidence, last: float, best: float) -> bool:
    sign = 1 if evidence.run.spec.better == "higher" else -1
    return sign * (best - last) > WORTH * abs(best)


def _still_there(evidence: Evidence, step: int) -> bool:
    """Whether what a step wrote is at the end as it left it: then that is what was submitted."""
    line = evidence.changes.get(step)
    if line is None:
        return True  # it wrote what was there already
    named = {path: entry for path, entry in line.changed.items() if "submission" in path}
    return (named or line.changed).items() <= evidence.final.items()
