"""Rule: the submission is worse than an earlier state of the same run."""

import math
from collections.abc import Iterator

from mlagentbench.agents.tuner import parse_validation_score
from mlagentbench.analysis.anytime import read_step_grades
from mlagentbench.formatting import format_score
from mlagentbench.process.evidence import Evidence, shell_commands
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.process.rules.unresolved_error import ran_successfully

TITLE = "submission worse than its best"
MIN_RELATIVE_LOSS = 0.01  # relative to the best; smaller losses may be noise
StepScore = tuple[int, float]  # step number, and its grade or validation score


def worse_than_best(evidence: Evidence) -> Iterator[RuleMatch]:
    """Uses the step grades if the steps were graded, otherwise the validation scores that scripts printed."""
    if evidence.agent_finished and evidence.steps:
        graded = {grade.step for grade in read_step_grades(evidence.run)}
        is_graded = len(evidence.steps) in graded
        yield from _compare_grades(evidence) if is_graded else _compare_validation_scores(evidence)


def _compare_grades(evidence: Evidence) -> Iterator[RuleMatch]:
    *before, last = [grade for grade in read_step_grades(evidence.run) if grade.step <= len(evidence.steps)]
    best = _find_best(evidence, [(grade.step, grade.score) for grade in before if grade.score is not None])
    if best is None or (last.score is None and not last.invalid):
        return
    if last.score is None or _is_worse(evidence, last.score, best[1]):
        outcome = "is invalid" if last.score is None else f"scores {format_score(last.score)}"
        source = f"Step {best[0]}" if best[0] else "The starter"
        steps = tuple(step for step in (best[0], last.step) if step)
        sentence = f"{source} would have scored {format_score(best[1])}, but the submission {outcome}."
        yield RuleMatch(sentence, steps)


def _compare_validation_scores(evidence: Evidence) -> Iterator[RuleMatch]:
    executed = [
        step
        for step in evidence.steps
        if shell_commands(step) or (step.execution and ran_successfully(step.execution))
    ]
    printed = [(step.number, parse_validation_score(step.observation)) for step in executed]
    scores = [(step, score) for step, score in printed if math.isfinite(score)]
    best = _find_best(evidence, scores[:-1])
    if best is None:
        return
    last_step, last_score = scores[-1]
    if _is_worse(evidence, last_score, best[1]) and not _was_kept(evidence, best[0]):
        sentence = (
            f"Step {best[0]} printed a validation score of {format_score(best[1])},"
            f" but the last one was {format_score(last_score)}."
        )
        yield RuleMatch(sentence, (best[0], last_step))


def _find_best(evidence: Evidence, scores: list[StepScore]) -> StepScore | None:
    sign = 1 if evidence.run.spec.better == "higher" else -1
    return max(scores, key=lambda step_score: sign * step_score[1], default=None)


def _is_worse(evidence: Evidence, last: float, best: float) -> bool:
    sign = 1 if evidence.run.spec.better == "higher" else -1
    return sign * (best - last) > MIN_RELATIVE_LOSS * abs(best)


def _was_kept(evidence: Evidence, step: int) -> bool:
    """Whether the files that a step wrote are unchanged at the end: then they were submitted."""
    line = evidence.changes.get(step)
    if line is None:
        return True  # it wrote no new content
    submissions = {path: entry for path, entry in line.changed.items() if "submission" in path}
    return (submissions or line.changed).items() <= evidence.final_state.items()
