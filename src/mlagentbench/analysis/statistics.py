"""The formula of every metric, on plain numbers. docs/reference/metrics.md has a worked example of each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Values = Sequence[float]
CONFIDENCE_LEVEL = 0.95  # of all intervals
MAX_RESAMPLES = 10_000
MIN_RESAMPLES = 1_000
MAX_DRAWS = 20_000_000  # of one bootstrap; above it, there are fewer resamples
MAX_DRAWS_IN_MEMORY = 2_000_000
ZERO_TOLERANCE = 1e-12  # smaller differences are rounding errors
BOOTSTRAP_SEED = 20240721  # fixed, so that the same runs always give the same intervals


class Interval(NamedTuple):
    """A confidence interval; empty for a single observation."""

    low: float | None = None
    high: float | None = None


def wilson_interval(count: float, total: float, level: float = CONFIDENCE_LEVEL) -> Interval:
    """Wilson score interval of a rate. Fractional counts are allowed and stand for weighted runs."""
    if not total:
        return Interval()
    z, rate = NormalDist().inv_cdf((1 + level) / 2), count / total
    center = rate + z * z / (2 * total)
    half_width = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    # Exactly 0 and 1 at the ends, without rounding errors.
    return Interval(
        0.0 if count == 0 else (center - half_width) / scale,
        1.0 if count == total else (center + half_width) / scale,
    )


def mean(values: Values) -> float | None:
    """The mean, or None without values."""
    return math.fsum(values) / len(values) if len(values) else None


def bootstrap_interval(values: Values, level: float = CONFIDENCE_LEVEL) -> Interval:
    """Percentile bootstrap interval of the mean; needs at least two values."""
    if len(values) < 2:
        return Interval()
    return percentile_interval(next(_resample_means([values])), level)


def stratified_interval(tasks: Sequence[Values], level: float = CONFIDENCE_LEVEL) -> Interval:
    """Percentile bootstrap interval of the unweighted mean over tasks; runs are resampled within tasks.

    A task with one value, or with identical values, adds no width.
    """
    if not any(len(values) > 1 for values in tasks):
        return Interval()
    total: Array | float = 0.0
    for means in _resample_means(tasks):
        total = total + means
    assert isinstance(total, np.ndarray)
    return percentile_interval(total / len(tasks), level)


def stratified_rate_interval(tasks: Sequence[Values]) -> Interval:
    """The same for rates, with Wilson's interval if no task has differing runs or there is only one task.

    The bootstrap interval of identical runs has zero width, however few runs there are.
    """
    interval = stratified_interval(tasks)
    if len(tasks) > 1 and interval.low != interval.high:
        return interval
    return _wilson_interval_over_tasks(tasks)


def _wilson_interval_over_tasks(tasks: Sequence[Values]) -> Interval:
    """Wilson's interval for the number of runs that would be equally precise in a single task."""
    if not tasks:
        return Interval()
    total = len(tasks) ** 2 / math.fsum(1 / len(values) for values in tasks)
    rate = math.fsum(math.fsum(values) / len(values) for values in tasks) / len(tasks)
    return wilson_interval(total if rate == 1 else rate * total, total)


def percentile_interval(drawn: Array, level: float = CONFIDENCE_LEVEL) -> Interval:
    """The central interval of resampled values."""
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _resample_means(groups: Sequence[Values]) -> Iterator[Array]:
    """Resampled means of each group, the same number for all; independent of the order of the values."""
    random = np.random.default_rng(BOOTSTRAP_SEED)
    count = resample_count(sum(map(len, groups)))
    for values in groups:
        yield _draw_means(np.sort(np.asarray(values, float)), count, random)


def resample_count(size: int) -> int:
    """The number of resamples for this many values."""
    return max(MIN_RESAMPLES, min(MAX_RESAMPLES, MAX_DRAWS // max(size, 1)))


def _draw_means(values: Array, count: int, random: np.random.Generator) -> Array:
    """Means of `count` resamples; with only two distinct values, draws their counts instead of each value."""
    size = len(values)
    if values[0] == values[-1]:
        return np.full(count, values[0])
    if len(np.unique(values)) == 2:
        share = random.binomial(size, float(np.mean(values == values[-1])), count) / size
        return np.asarray(values[0] + share * (values[-1] - values[0]))
    means, rows = np.empty(count), max(MAX_DRAWS_IN_MEMORY // size, 1)
    for start in range(0, count, rows):
        drawn = random.integers(size, size=(min(rows, count - start), size), dtype=np.int32)
        means[start : start + rows] = values[drawn].mean(axis=1)
    return means


def pass_at_k(successes: int, total: int, k: int) -> float:
    """The probability that at least one of k runs, drawn from all runs without replacement, succeeds."""
    if not 1 <= k <= total:
        raise ValueError(f"Cannot draw {k} runs from {total}")
    return 1.0 - math.comb(total - successes, k) / math.comb(total, k)


def expected_best_of_k(values: Values, k: int) -> float:
    """The expected maximum of k values, drawn from all values without replacement."""
    size = len(values)
    if not 1 <= k <= size:
        raise ValueError(f"Cannot draw {k} values from {size}")
    # The value at sorted position i is the maximum if the other k - 1 values are among the i before it.
    weights = (math.comb(i, k - 1) / math.comb(size, k) for i in range(k - 1, size))
    return math.fsum(weight * value for weight, value in zip(weights, sorted(values)[k - 1 :], strict=True))


class Difference(NamedTuple):
    """First agent minus second: the value, its interval, and the probability that the first is better."""

    value: float
    interval: Interval
    chance: float


def paired_difference(first: Sequence[Values], second: Sequence[Values]) -> Difference:
    """Mean over tasks of first minus second; resamples tasks, and runs of both sides within each task."""
    if not first or len(first) != len(second):
        raise ValueError("Both sides need values for the same tasks")
    count = resample_count(sum(map(len, first)) + sum(map(len, second)))
    random = np.random.default_rng(BOOTSTRAP_SEED)
    # Both sides use one random stream, so that two agents with the same runs still vary independently.
    table = np.empty((len(first), count))
    for row, (left, right) in enumerate(zip(first, second, strict=True)):
        left_means = _draw_means(np.sort(np.asarray(left, float)), count, random)
        table[row] = left_means - _draw_means(np.sort(np.asarray(right, float)), count, random)
    drawn = _resample_tasks(table, random)
    differences = [np.mean(left) - np.mean(right) for left, right in zip(first, second, strict=True)]
    value = math.fsum(differences) / len(differences)
    if np.ptp(drawn) < ZERO_TOLERANCE:
        return _difference_without_spread(first, second, float(value))
    chance = float(np.mean(drawn > 0) + np.mean(drawn == 0) / 2)
    return Difference(float(value), percentile_interval(drawn), chance)


def _difference_without_spread(first: Sequence[Values], second: Sequence[Values], value: float) -> Difference:
    """If all resamples are equal: rates get Newcombe's interval, other values get none."""
    if not {float(x) for values in (*first, *second) for x in values} <= {0.0, 1.0}:
        chance = 0.5 + math.copysign(0.5, value) if abs(value) > ZERO_TOLERANCE else 0.5
        return Difference(value, Interval(), chance)
    means = [
        math.fsum(math.fsum(values) / len(values) for values in side) / len(side) for side in (first, second)
    ]
    low, high = _wilson_interval_over_tasks(first)
    other_low, other_high = _wilson_interval_over_tasks(second)
    assert low is not None and high is not None and other_low is not None and other_high is not None
    below = math.hypot(means[0] - low, other_high - means[1])
    above = math.hypot(high - means[0], means[1] - other_low)
    random = np.random.default_rng(BOOTSTRAP_SEED)
    chance = float(np.mean(_draw_posterior(first, random) > _draw_posterior(second, random)))
    return Difference(value, Interval(value - below, value + above), chance)


def _draw_posterior(tasks: Sequence[Values], random: np.random.Generator) -> Array:
    """Posterior draws of the mean over tasks of rates, with Jeffreys' prior."""
    drawn = [random.beta(sum(v) + 0.5, len(v) - sum(v) + 0.5, MAX_RESAMPLES) for v in tasks]
    return np.asarray(np.mean(drawn, axis=0))


def _resample_tasks(table: Array, random: np.random.Generator) -> Array:
    """Means over tasks drawn with replacement; a task drawn twice has its runs resampled independently."""
    tasks, count = table.shape
    total = np.zeros(count)
    for _ in range(tasks):
        total += table[random.integers(tasks, size=count), random.integers(count, size=count)]
    return np.asarray(total / tasks)


def rank_probabilities(agents: Sequence[Sequence[Values]]) -> Array:
    """Probability of every rank (columns) for every agent (rows), by the mean over resampled tasks and runs.

    All agents get the same resampled tasks. Agents with the same mean share the better rank.
    """
    if not agents:
        return np.empty((0, 0))
    random = np.random.default_rng(BOOTSTRAP_SEED)
    count = resample_count(sum(len(values) for tasks in agents for values in tasks))
    tables = [
        np.stack([_draw_means(np.sort(np.asarray(v, float)), count, random) for v in tasks])
        for tasks in agents
    ]
    tasks = len(agents[0])
    totals = np.zeros((len(agents), count))
    for _ in range(tasks):
        task = random.integers(tasks, size=count)
        for row, table in enumerate(tables):
            totals[row] += table[task, random.integers(count, size=count)]
    totals = np.round(totals / tasks, 12)  # ignores differences from the order of summation
    places = np.stack([(totals > own).sum(axis=0) for own in totals])
    return np.stack([np.bincount(row, minlength=len(agents)) for row in places]) / count


def quantile_index(chances: Values, share: float) -> int:
    """The first index at which the cumulative probability reaches `share`."""
    return min(int(np.searchsorted(np.cumsum(chances), share - ZERO_TOLERANCE)), len(chances) - 1)


def performance_profile(
    agents: Mapping[str, Sequence[float | None]], distances: Values
) -> dict[str, list[float]]:
    """Performance profile: the share of tasks on which an agent is within each distance of the best agent.

    Distances are differences, not ratios, because values may be negative. An agent without a value for a task
    is infinitely far from the best.
    """
    table = np.array([[math.nan if v is None else v for v in values] for values in agents.values()], float)
    if not table.size:
        return {agent: [0.0 for _ in distances] for agent in agents}
    known = np.where(np.isnan(table), -math.inf, table)
    best = known.max(axis=0)
    behind = np.where(np.isneginf(known), math.inf, best - np.where(np.isneginf(known), 0.0, known))
    near = [[float(np.mean(row <= distance + ZERO_TOLERANCE)) for distance in distances] for row in behind]
    return dict(zip(agents, near, strict=True))


def shares_above(tasks: Sequence[Sequence[float | None]], thresholds: Values) -> list[float]:
    """Score distribution: share of runs above each threshold, averaged over tasks; None is never above."""
    above = [
        [sum(v is not None and v > t for v in values) / len(values) for t in thresholds] for values in tasks
    ]
    return [math.fsum(column) / len(tasks) for column in zip(*above, strict=True)]


def mann_whitney_p_value(first: Values, second: Values) -> float:
    """The p-value of the two-sided Mann-Whitney test. Infinite values are allowed."""
    if not len(first) or not len(second):
        return 1.0
    from scipy import stats  # the import takes a second, and only this function needs it

    order = stats.rankdata([*first, *second])
    if np.ptp(order) == 0:
        return 1.0
    return float(min(stats.mannwhitneyu(order[: len(first)], order[len(first) :]).pvalue, 1.0))


def probability_of_superiority(first: Values, second: Values) -> float:
    """The share of pairs in which the first value is larger; ties count half."""
    pairs = [(x > y) + (x == y) / 2 for x in first for y in second]
    return sum(pairs) / len(pairs)


def holm_adjust(p_values: Values) -> list[float]:
    """Holm's correction for multiple tests."""
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted
