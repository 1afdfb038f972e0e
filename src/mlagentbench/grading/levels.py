"""Where a score lies between the levels of a task: starter, reference, expert and ceiling."""

import math

from mlagentbench.records import Levels, Scale, Start


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
