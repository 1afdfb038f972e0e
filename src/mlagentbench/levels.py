"""The levels of a task (starter, reference, expert, ceiling) and what a run must reach to succeed."""

import math

from mlagentbench.records import Baseline, Better, Levels, Scale, Start

MIN_IMPROVEMENT = 0.10  # relative to the baseline's mean, as in the paper
MIN_GAP_CLOSED = 0.10  # of the gap to the next level, if a run began at a stronger start
SIGNIFICANCE_LEVEL = 0.05  # largest probability that a run of the unchanged start scores this well
MAX_ROUNDING_ERROR = 1e-5  # relative: the means in task.toml have six digits


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
    """Return the score from which on a submission is a success: enough improvement, and beyond noise.

    None if the score of the start is not known. Infinite if it was measured once: nothing is known about its
    noise then, so no score is a success.
    """
    baseline, goal = levels.solution(start), goal_score(levels, start, better, scale)
    if baseline is None:
        return None
    if goal is None:
        enough = score_to_beat(baseline, better)
    elif scale == "log":
        enough = baseline.mean * math.pow(goal / baseline.mean, MIN_GAP_CLOSED)
    else:
        enough = baseline.mean + MIN_GAP_CLOSED * (goal - baseline.mean)
    gain = significant_gain(baseline)
    return max(enough, baseline.mean + gain) if better == "higher" else min(enough, baseline.mean - gain)


def is_success_possible(levels: Levels, start: Start, better: Better, scale: Scale) -> bool:
    """Whether some score can be a success: the required one is finite, and not beyond the ceiling."""
    required = required_score(levels, start, better, scale)
    if required is None or not math.isfinite(required):
        return False
    if levels.ceiling is None:
        return True
    return required <= levels.ceiling.score if better == "higher" else required >= levels.ceiling.score


def significant_gain(baseline: Baseline) -> float:
    """Return the gain over the baseline's mean from which on noise does not explain it."""
    if baseline.n < 2:
        return math.inf
    low, high = 0.0, baseline.sd
    while gain_p_value(high, baseline) >= SIGNIFICANCE_LEVEL and high > 0:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if gain_p_value(middle, baseline) >= SIGNIFICANCE_LEVEL:
            low = middle
        else:
            high = middle
    return high


def gain_p_value(gain: float, baseline: Baseline) -> float:
    """Return the probability that one more run of the starter gains as much.

    This is a one-sided t test of a new observation.
    """
    if baseline.n < 2:
        return 1.0  # one run says nothing about the spread
    if baseline.sd == 0:
        return 0.0 if gain > MAX_ROUNDING_ERROR * abs(baseline.mean) else 1.0
    return student_t_tail(gain / (baseline.sd * math.sqrt(1 + 1 / baseline.n)), baseline.n - 1)


def student_t_tail(t: float, degrees: int) -> float:
    """Return P(T > t) for Student's t distribution.

    The same as `scipy.stats.t.sf`, whose import takes a third of the time of a short run.
    """
    if t < 0:
        return 1 - student_t_tail(-t, degrees)
    square = t * t
    return _incomplete_beta(degrees / (degrees + square), square / (degrees + square), degrees / 2, 0.5) / 2


def _incomplete_beta(x: float, y: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b) for x + y = 1.

    Its continued fraction is evaluated by the modified Lentz method.
    """
    if x == 0:
        return 0.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(y, x, b, a)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log(y) - log_beta) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction
