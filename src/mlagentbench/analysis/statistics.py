"""Every figure's formula: numbers in, numbers out. docs/metrics.md has each with an example worked by hand."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Values = Sequence[float]
CONFIDENCE_LEVEL = 0.95  # of every interval
MAX_RESAMPLES = 10_000
MIN_RESAMPLES = 1_000  # resamples, however many values there are
MAX_DRAWS = 20_000_000  # draws that one bootstrap may make before it takes fewer resamples
MAX_DRAWS_IN_MEMORY = 2_000_000  # draws held in memory
ZERO_TOLERANCE = 1e-12  # a difference that is none
BOOTSTRAP_SEED = 20240721  # the same runs always have the same intervals


class Interval(NamedTuple):
    """Where a figure probably lies; nothing is said of what was seen only once."""

    low: float | None = None
    high: float | None = None


def wilson_interval(count: float, total: float, level: float = CONFIDENCE_LEVEL) -> Interval:
    """Wilson's score interval of a rate; numbers that are not whole stand for runs of other weights."""
    if not total:
        return Interval()
    z, rate = NormalDist().inv_cdf((1 + level) / 2), count / total
    middle = rate + z * z / (2 * total)
    reach = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    # Exact where rounding would not be: no success at all has a rate from nought.
    return Interval(
        0.0 if count == 0 else (middle - reach) / scale, 1.0 if count == total else (middle + reach) / scale
    )


def mean(values: Values) -> float | None:
    """The mean, if there is any."""
    return math.fsum(values) / len(values) if len(values) else None


def bootstrap_interval(values: Values, level: float = CONFIDENCE_LEVEL) -> Interval:
    """Percentile bootstrap interval of the mean, from two values on."""
    if len(values) < 2:
        return Interval()
    return percentile_interval(next(_resample_means([values])), level)


def stratified_interval(tasks: Sequence[Values], level: float = CONFIDENCE_LEVEL) -> Interval:
    """Percentile bootstrap interval of the mean over tasks, each of one weight, where runs are drawn within tasks.

    A task of one value, or of values that are all the same, adds no width.
    """
    if not any(len(values) > 1 for values in tasks):
        return Interval()
    total: Array | float = 0.0
    for means in _resample_means(tasks):
        total = total + means
    assert isinstance(total, np.ndarray)
    return percentile_interval(total / len(tasks), level)


def stratified_rate_interval(tasks: Sequence[Values]) -> Interval:
    """The same for a mean over tasks of rates; by Wilson where runs of a task never differ, or there is one task.

    A bootstrap of runs that all agree has no width, however few they are.
    """
    found = stratified_interval(tasks)
    return found if len(tasks) > 1 and found.low != found.high else _wilson_interval_over_tasks(tasks)


def _wilson_interval_over_tasks(tasks: Sequence[Values]) -> Interval:
    """As many runs as would be as exact in one task as these are in theirs."""
    if not tasks:
        return Interval()
    of = len(tasks) ** 2 / math.fsum(1 / len(values) for values in tasks)
    rate = math.fsum(math.fsum(values) / len(values) for values in tasks) / len(tasks)
    return wilson_interval(of if rate == 1 else rate * of, of)


def percentile_interval(drawn: Array, level: float = CONFIDENCE_LEVEL) -> Interval:
    """The interval in which the middle of what was drawn lies."""
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _resample_means(groups: Sequence[Values]) -> Iterator[Array]:
    """The mean of each group over the same number of resamples; the order of the values makes no difference."""
    random = np.random.default_rng(BOOTSTRAP_SEED)
    count = resample_count(sum(map(len, groups)))
    for values in groups:
        yield _draw_means(np.sort(np.asarray(values, float)), count, random)


def resample_count(size: int) -> int:
    """How many resamples so many values get."""
    return max(MIN_RESAMPLES, min(MAX_RESAMPLES, MAX_DRAWS // max(size, 1)))


def _draw_means(values: Array, count: int, random: np.random.Generator) -> Array:
    """Means of `count` resamples; where only two values occur, their numbers are drawn, and not each value."""
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
    """The chance that at least one of k runs, drawn without putting back from all that there are, succeeds."""
    if not 1 <= k <= total:
        raise ValueError(f"{k} runs cannot be drawn from {total}")
    return 1.0 - math.comb(total - successes, k) / math.comb(total, k)


def expected_best_of_k(values: Values, k: int) -> float:
    """The expected best of k values, drawn without putting back from all that there are."""
    size = len(values)
    if not 1 <= k <= size:
        raise ValueError(f"{k} values cannot be drawn from {size}")
    chances = (math.comb(place, k - 1) / math.comb(size, k) for place in range(k - 1, size))
    return math.fsum(chance * value for chance, value in zip(chances, sorted(values)[k - 1 :], strict=True))


class Difference(NamedTuple):
    """Of two entrants: first minus second, its interval, and the chance that the first is better."""

    value: float
    interval: Interval
    chance: float


def paired_difference(first: Sequence[Values], second: Sequence[Values]) -> Difference:
    """Mean over tasks of first minus second; resampled over tasks, and over the runs within each, on both sides."""
    if not first or len(first) != len(second):
        raise ValueError("both need values for the same tasks")
    count = resample_count(sum(map(len, first)) + sum(map(len, second)))
    random = np.random.default_rng(BOOTSTRAP_SEED)
    # Both sides draw from one stream: two entrants with the same runs still vary against each other.
    table = np.empty((len(first), count))
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        left = _draw_means(np.sort(np.asarray(one, float)), count, random)
        table[place] = left - _draw_means(np.sort(np.asarray(other, float)), count, random)
    drawn = _resample_tasks(table, random)
    value = math.fsum(np.mean(one) - np.mean(other) for one, other in zip(first, second, strict=True)) / len(
        first
    )
    if np.ptp(drawn) < ZERO_TOLERANCE:
        return _difference_without_spread(first, second, float(value))
    return Difference(
        float(value), percentile_interval(drawn), float(np.mean(drawn > 0) + np.mean(drawn == 0) / 2)
    )


def _difference_without_spread(first: Sequence[Values], second: Sequence[Values], value: float) -> Difference:
    """Where no resample differs from another: rates still have an interval, by Newcombe; other figures have none."""
    if not {float(each) for values in (*first, *second) for each in values} <= {0.0, 1.0}:
        return Difference(
            value, Interval(), 0.5 + math.copysign(0.5, value) if abs(value) > ZERO_TOLERANCE else 0.5
        )
    means = [
        math.fsum(math.fsum(values) / len(values) for values in side) / len(side) for side in (first, second)
    ]
    (low, high), (other_low, other_high) = (
        _wilson_interval_over_tasks(first),
        _wilson_interval_over_tasks(second),
    )
    assert low is not None and high is not None and other_low is not None and other_high is not None
    below, above = (
        math.hypot(means[0] - low, other_high - means[1]),
        math.hypot(high - means[0], means[1] - other_low),
    )
    random = np.random.default_rng(BOOTSTRAP_SEED)
    chance = float(np.mean(_draw_posterior(first, random) > _draw_posterior(second, random)))
    return Difference(value, Interval(value - below, value + above), chance)


def _draw_posterior(tasks: Sequence[Values], random: np.random.Generator) -> Array:
    """Draws of a mean over tasks of rates, as Jeffreys' prior and the runs have it."""
    drawn = [random.beta(sum(v) + 0.5, len(v) - sum(v) + 0.5, MAX_RESAMPLES) for v in tasks]
    return np.asarray(np.mean(drawn, axis=0))


def _resample_tasks(table: Array, random: np.random.Generator) -> Array:
    """Means over tasks drawn with putting back; a task drawn twice has its runs drawn anew."""
    tasks, count = table.shape
    total = np.zeros(count)
    for _ in range(tasks):
        total += table[random.integers(tasks, size=count), random.integers(count, size=count)]
    return np.asarray(total / tasks)


def rank_probabilities(agents: Sequence[Sequence[Values]]) -> Array:
    """Chance of every rank (columns) for every entrant (rows): mean over tasks, resampled over tasks and runs.

    The tasks are drawn together for all. Entrants with the same mean share the better rank.
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
    totals = np.round(totals / tasks, 12)  # sums in another order are no difference
    places = np.stack([(totals > own).sum(axis=0) for own in totals])
    return np.stack([np.bincount(row, minlength=len(agents)) for row in places]) / count


def quantile_index(chances: Values, share: float) -> int:
    """The first place up to which the chances come to a share of all."""
    return min(int(np.searchsorted(np.cumsum(chances), share - ZERO_TOLERANCE)), len(chances) - 1)


def performance_profile(
    agents: Mapping[str, Sequence[float | None]], distances: Values
) -> dict[str, list[float]]:
    """Performance profile: the share of tasks on which an entrant is at most so far below the best of all.

    Differences, not ratios, so that figures may be negative. Whoever has no figure for a task is never near enough.
    """
    table = np.array([[math.nan if v is None else v for v in values] for values in agents.values()], float)
    if not table.size:
        return {who: [0.0 for _ in distances] for who in agents}
    known = np.where(np.isnan(table), -math.inf, table)
    best = known.max(axis=0)
    behind = np.where(np.isneginf(known), math.inf, best - np.where(np.isneginf(known), 0.0, known))
    near = [[float(np.mean(row <= distance + ZERO_TOLERANCE)) for distance in distances] for row in behind]
    return dict(zip(agents, near, strict=True))


def shares_above(tasks: Sequence[Sequence[float | None]], thresholds: Values) -> list[float]:
    """Score distribution: mean over tasks of the share of runs above each threshold; a run without figure never is."""
    above = [
        [sum(v is not None and v > t for v in values) / len(values) for t in thresholds] for values in tasks
    ]
    return [math.fsum(column) / len(tasks) for column in zip(*above, strict=True)]


def mann_whitney_p_value(first: Values, second: Values) -> float:
    """Two-sided Mann-Whitney test: the chance of so uneven an order if both were alike. Infinite values may stand."""
    if not len(first) or not len(second):
        return 1.0
    from scipy import stats  # takes a second, and nothing else here needs it

    order = stats.rankdata([*first, *second])
    if np.ptp(order) == 0:
        return 1.0
    return float(min(stats.mannwhitneyu(order[: len(first)], order[len(first) :]).pvalue, 1.0))


def probability_of_superiority(first: Values, second: Values) -> float:
    """The share of pairs in which the first is above; half for each tie."""
    pairs = [(one > other) + (one == other) / 2 for one in first for other in second]
    return sum(pairs) / len(pairs)


def holm_adjust(p_values: Values) -> list[float]:
    """Holm's correction: each as it holds when so many are looked at together."""
    adjusted, running = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = running
    return adjusted
