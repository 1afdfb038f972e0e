"""Rule: what was submitted is worse than what the run had already reached."""

import math
from collections.abc import Iterator

from mlagentbench.agents.tuner import parse_validation_score
from mlagentbench.analysis.anytime import read_step_grades
from mlagentbench.formatting import format_score
from mlagentbench.process.evidence import Evidence
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.process.rules.unresolved_error import ran_successfully

TITLE = "submitted worse than its own best"
MIN_RELATIVE_LOSS = 0.01  # of the best: a smaller loss may be noise
StepScore = tuple[int, float]  # a step, and its score or its figure


def worse_than_best(evidence: Evidence) -> Iterator[RuleMatch]:
    """By the grades of its steps if they were graded, and else by the validation figures that its scripts printed."""
    if evidence.agent_finished and evidence.steps:
        graded = {grade.step: grade for grade in read_step_grades(evidence.run)}
        yield from (
            _compare_grades(evidence)
            if len(evidence.steps) in graded
            else _compare_validation_scores(evidence)
        )


def _compare_grades(evidence: Evidence) -> Iterator[RuleMatch]:
    *before, last = [grade for grade in read_step_grades(evidence.run) if grade.step <= len(evidence.steps)]
    best = _find_best(evidence, [(grade.step, grade.score) for grade in before if grade.score is not None])
    if best is None or (last.score is None and not last.invalid):
        return
    if last.score is None or _is_worse(evidence, last.score, best[1]):
        now = "is not valid" if last.score is None else f"scores {format_score(last.score)}"
        state = f"Step {best[0]}" if best[0] else "The starter"
        steps = tuple(step for step in (best[0], last.step) if step)
        yield RuleMatch(
            f"{state} would have scored {format_score(best[1])}, but what was submitted {now}.", steps
        )


def _compare_validation_scores(evidence: Evidence) -> Iterator[RuleMatch]:
    ran = [step for step in evidence.steps if step.execution and ran_successfully(step.execution)]
    reached = [(step.number, parse_validation_score(step.observation)) for step in ran]
    reached = [(step, value) for step, value in reached if math.isfinite(value)]
    best = _find_best(evidence, reached[:-1])
    if best and _is_worse(evidence, reached[-1][1], best[1]) and not _was_kept(evidence, best[0]):
        what = f"Step {best[0]} printed a validation figure of {format_score(best[1])}"
        yield RuleMatch(
            f"{what}, but the last one was {format_score(reached[-1][1])}.", (best[0], reached[-1][0])
        )


def _find_best(evidence: Evidence, reached: list[StepScore]) -> StepScore | None:
    sign = 1 if evidence.run.spec.better == "higher" else -1
    return max(reached, key=lambda each: sign * each[1], default=None)


def _is_worse(evidence: Evidence, last: float, best: float) -> bool:
    sign = 1 if evidence.run.spec.better == "higher" else -1
    return sign * (best - last) > MIN_RELATIVE_LOSS * abs(best)


def _was_kept(evidence: Evidence, step: int) -> bool:
    """Whether what a step wrote is at the end as it left it: then that is what was submitted."""
    line = evidence.changes.get(step)
    if line is None:
        return True  # it wrote what was there already
    named = {path: entry for path, entry in line.changed.items() if "submission" in path}
    return (named or line.changed).items() <= evidence.final_state.items()
