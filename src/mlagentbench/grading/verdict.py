"""Compares a score with the baseline: success is a 10 % improvement that noise alone does not explain."""

import math
import re

from mlagentbench.formatting import format_score
from mlagentbench.levels import (
    MIN_GAP_CLOSED,
    MIN_IMPROVEMENT,
    SIGNIFICANCE_LEVEL,
    compute_progress,
    fraction_of_gap,
    gain_p_value,
    next_level_score,
    score_to_beat,
)
from mlagentbench.records import Baseline, Better, Levels, RunSpec, Scale, Verdict

FRACTION_METRIC = re.compile(  # names of metrics whose best value is 1
    r"accura|precision|recall|\bf1\b|f1[- ]score|\bauc\b|\broc\b|dice|\biou\b|jaccard|\br2\b|r²",
    re.IGNORECASE,
)


def judge_score(score: float, spec: RunSpec) -> Verdict | None:
    """Judge a score by the rules of a run; None if the baseline of its start is not known.

    A run from a stronger start succeeds if it closes enough of the gap to the next level. Without a next
    level (a speed task has no ceiling), the rule for ordinary runs applies.
    """
    if spec.baseline is None:
        return None
    goal = next_level_score(spec.levels, spec.start)
    verdict = compute_verdict(score, spec.baseline, spec.better, goal, spec.scale)
    return verdict.replace(progress=compute_progress(score, spec.levels, spec.scale))


def compute_verdict(
    score: float, baseline: Baseline, better: Better, goal: float | None = None, scale: Scale = "linear"
) -> Verdict:
    """Judge a score; success needs both enough improvement and significance.

    Relative improvement over a baseline of zero is undefined: there, any gain counts as improvement.

    Args:
        score: The score of a submission.
        baseline: The scores of the unchanged start.
        better: Whether higher or lower scores are better.
        goal: The score of the next level, if the improvement is measured by the gap to it.
        scale: The scale of that gap.
    """
    gain, improvement = _gain(score, baseline, better), relative_improvement(score, baseline, better)
    gap_closed = None
    if goal is not None and _gain(goal, baseline, better) > 0:
        gap_closed = fraction_of_gap(score, baseline.mean, goal, scale)
    if gap_closed is not None:
        improved = gap_closed >= MIN_GAP_CLOSED
    else:
        improved = gain > 0 if improvement is None else improvement > MIN_IMPROVEMENT
    p_value = gain_p_value(gain, baseline)
    return Verdict(
        baseline=baseline.mean,
        improvement=improvement,
        gap_closed=gap_closed,
        improved=improved,
        p_value=p_value,
        success=improved and p_value < SIGNIFICANCE_LEVEL,
    )


def is_at_least_as_good(score: float, other: float, better: Better) -> bool:
    """Whether a score is not worse than another one."""
    return score >= other if better == "higher" else score <= other


def find_unreachable_success(levels: Levels, metric: str, better: Better) -> str:
    """Explain that no score can be a success, and what to do; empty if one can, as far as is known.

    The best possible score is the ceiling, or 1 for a metric that is a fraction by its name.
    """
    starter = levels.starter
    best = levels.ceiling.score if levels.ceiling else None
    if best is None and better == "higher" and FRACTION_METRIC.search(metric):
        best = 1.0
    if starter is None or best is None or (levels.ceiling is None and starter.mean > best):
        return ""
    return explain_unreachable(best, starter, better)


def explain_unreachable(best: float, starter: Baseline, better: Better) -> str:
    """Explain that even the best possible score is no success, and what to do; empty if it is one."""
    if compute_verdict(best, starter, better).success:
        return ""
    scored = f"{format_score(starter.mean)} ± {format_score(starter.sd)}"
    needed = f"{'more' if better == 'higher' else 'less'} than {format_score(score_to_beat(starter, better))}"
    return (
        f"No score can be a success: the starter scores {scored}, so success needs {needed},"
        f" and the best possible score is {format_score(best)}."
        " Use a weaker starter, or a metric with more room, such as the error rate instead of the accuracy."
    )


def relative_improvement(score: float, baseline: Baseline, better: Better) -> float | None:
    """Return the improvement as a fraction of the baseline's mean; None if the mean is zero."""
    return _gain(score, baseline, better) / abs(baseline.mean) if baseline.mean else None


def _gain(score: float, baseline: Baseline, better: Better) -> float:
    return score - baseline.mean if better == "higher" else baseline.mean - score


def summarize_scores(scores: list[float], hardware: str = "") -> Baseline:
    """Compute the mean and the sample standard deviation of a starter's scores."""
    mean = math.fsum(scores) / len(scores)
    squares = math.fsum((score - mean) ** 2 for score in scores)
    return Baseline(
        mean=mean,
        sd=math.sqrt(squares / (len(scores) - 1)) if len(scores) > 1 else 0.0,
        n=len(scores),
        hardware=hardware,
    )
