"""The levels of a task (starter, reference, expert, ceiling) and what a run must reach to succeed."""

import math

from mlagentbench.records import Baseline, Better, Levels, Scale, Start

MIN_IMPROVEMENT = 0.10  # relative to the baseline's mean, as in the paper
MIN_GAP_CLOSED = 0.10  # of the gap to the next level, if a run began at a stronger start
SIGNIFICANCE_LEVEL = 0.05  # largest probability that a run of the unchanged start scores this well


def compute_progress(score: float, levels: Levels, scale: Scale) -> float | None:
    """Return the progress of a score: 0 at the starter, 1 at the expert, not capped.

    None if one of these levels is not known.
    """
    if levels.starter is None or levels.expert is None:
        return None
    return fraction_of_gap(score, levels.starter.mean, levels.expert.mean, scale)


def fraction_of_gap(score: float, zero: float, one: float, scale: Scale) -> float | None:
    """Return the position of a score on a scale that is 0 at `zero` and 1 at `one`.

    None if there is no gap, or if a logarithm of it does not exist.
    """
    if scale == "log":
        if min(score, zero, one) <= 0:
            return None
        score, zero, one = math.log(score), math.log(zero), math.log(one)
    return (score - zero) / (one - zero) if one != zero else None


def next_level_score(levels: Levels, start: Start) -> float | None:
    """Return the score of the level above a stronger start; None for the starter and if it is not known."""
    if start == "reference" and levels.expert:
        return levels.expert.mean
    if start == "expert" and levels.ceiling:
        return levels.ceiling.score
    return None


def goal_score(levels: Levels, start: Start, better: Better, scale: Scale) -> float | None:
    """Return the score of the next level, if success is measured by the gap to it; else None."""
    baseline, goal = levels.solution(start), next_level_score(levels, start)
    if baseline is None or goal is None or (scale == "log" and min(goal, baseline.mean) <= 0):
        return None
    is_above = goal > baseline.mean if better == "higher" else goal < baseline.mean
    return goal if is_above else None


def score_to_beat(baseline: Baseline, better: Better) -> float:
    """Return the score that a success of an ordinary run must exceed; besides, it must be beyond noise."""
    step = MIN_IMPROVEMENT * abs(baseline.mean)
    return baseline.mean + step if better == "higher" else baseline.mean - step


def required_score(levels: Levels, start: Start, better: Better, scale: Scale) -> float | None:
    """Return the score with enough improvement for a success, which must be better beyond noise as well.

    None if the score of the start is not known.
    """
    baseline, goal = levels.solution(start), goal_score(levels, start, better, scale)
    if baseline is None:
        return None
    if goal is None:
        return score_to_beat(baseline, better)
    mean = baseline.mean
    if scale == "log":
        return mean * math.pow(goal / mean, MIN_GAP_CLOSED)
    return mean + MIN_GAP_CLOSED * (goal - mean)
