"""Every figure's formula: numbers in, numbers out. docs/metrics.md has each with an example worked by hand."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Values = Sequence[float]
LEVEL = 0.95  # of every interval
RESAMPLES = 10_000
FEWEST = 1_000  # resamples, however many values there are
WORK = 20_000_000  # draws that one bootstrap may make before it takes fewer resamples
AT_ONCE = 2_000_000  # draws held in memory
TINY = 1e-12  # a difference that is none
SEED = 20240721  # the same runs always have the same intervals


class Interval(NamedTuple):
    """Where a figure probably lies; nothing is said of what was seen only once."""

    low: float | None = None
    high: float | None = None


def wilson(count: float, of: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a rate; numbers that are not whole stand for runs of other weights."""
    if not of:
        return Interval()
    z, rate = NormalDist().inv_cdf((1 + level) / 2), count / of
    middle = rate + z * z / (2 * of)
    reach = z * math.sqrt(rate * (1 - rate) / of + z * z / (4 * of * of))
    scale = 1 + z * z / of
    # Exact where rounding would not be: no success at all has a rate from nought.
    return Interval(0.0 if count == 0 else (middle - reach) / scale, 1.0 if count == of else (middle + reach) / scale)


def mean(values: Values) -> float | None:
    """The mean, if there is any."""
    return math.fsum(values) / len(values) if len(values) else None


def bootstrap(values: Values, level: float = LEVEL) -> Interval:
    """Percentile bootstrap interval of the mean, from two values on."""
    if len(values) < 2:
        return Interval()
    return percentiles(next(_resampled([values])), level)


def stratified(tasks: Sequence[Values], level: float = LEVEL) -> Interval:
    """Percentile bootstrap interval of the mean over tasks, each of one weight, where runs are drawn within tasks.

    A task of one value, or of values that are all the same, adds no width.
    """
    if not any(len(values) > 1 for values in tasks):
        return Interval()
    total: Array | float = 0.0
    for means in _resampled(tasks):
        total = total + means
    assert isinstance(total, np.ndarray)
    return percentiles(total / len(tasks), level)


def stratified_rate(tasks: Sequence[Values]) -> Interval:
    """The same for a mean over tasks of rates; by Wilson where runs of a task never differ, or there is one task.

    A bootstrap of runs that all agree has no width, however few they are.
    """
    found = stratified(tasks)
    return found if len(tasks) > 1 and found.low != found.high else _wilson_over_tasks(tasks)


def _wilson_over_tasks(tasks: Sequence[Values]) -> Interval:
    """As many runs as would be as exact in one task as these are in theirs."""
    if not tasks:
        return Interval()
    of = len(tasks) ** 2 / math.fsum(1 / len(values) for values in tasks)
    rate = math.fsum(math.fsum(values) / len(values) for values in tasks) / len(tasks)
    return wilson(of if rate == 1 else rate * of, of)


def percentiles(drawn: Array, level: float = LEVEL) -> Interval:
    """The interval in which the middle of what was drawn lies."""
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _resampled(groups: Sequence[Values]) -> Iterator[Array]:
    """The mean of each group over the same number of resamples; the order of the values makes no difference."""
    random = np.random.default_rng(SEED)
    count = resamples(sum(map(len, groups)))
    for values in groups:
        yield _means(np.sort(np.asarray(values, float)), count, random)


def resamples(size: int) -> int:
    """How many resamples so many values get."""
    return max(FEWEST, min(RESAMPLES, WORK // max(size, 1)))


def _means(values: Array, count: int, random: np.random.Generator) -> Array:
    """Means of `count` resamples; where only two values occur, their numbers are drawn, and not each value."""
    size = len(values)
    if values[0] == values[-1]:
        return np.full(count, values[0])
    if len(np.unique(values)) == 2:
        share = random.binomial(size, float(np.mean(values == values[-1])), count) / size
        return np.asarray(values[0] + share * (values[-1] - values[0]))
    means, rows = np.empty(count), max(AT_ONCE // size, 1)
    for start in range(0, count, rows):
        drawn = random.integers(size, size=(min(rows, count - start), size), dtype=np.int32)
        means[start : start + rows] = values[drawn].mean(axis=1)
    return means


def pass_at_k(count: int, of: int, k: int) -> float:
    """The chance that at least one of k runs, drawn without putting back from all that there are, succeeds."""
    if not 1 <= k <= of:
        raise ValueError(f"{k} runs cannot be drawn from {of}")
    return 1.0 - math.comb(of - count, k) / math.comb(of, k)


def best_of_k(values: Values, k: int) -> float:
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


def paired(first: Sequence[Values], second: Sequence[Values]) -> Difference:
    """Mean over tasks of first minus second; resampled over tasks, and over the runs within each, on both sides."""
    if not first or len(first) != len(second):
        raise ValueError("both need values for the same tasks")
    count = resamples(sum(map(len, first)) + sum(map(len, second)))
    random = np.random.default_rng(SEED)
    # Both sides draw from one stream: two entrants with the same runs still vary against each other.
    table = np.empty((len(first), count))
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        left = _means(np.sort(np.asarray(one, float)), count, random)
        table[place] = left - _means(np.sort(np.asarray(other, float)), count, random)
    drawn = _over_tasks(table, random)
    value = math.fsum(np.mean(one) - np.mean(other) for one, other in zip(first, second, strict=True)) / len(first)
    if np.ptp(drawn) < TINY:
        return _without_spread(first, second, float(value))
    return Difference(float(value), percentiles(drawn), float(np.mean(drawn > 0) + np.mean(drawn == 0) / 2))


def _without_spread(first: Sequence[Values], second: Sequence[Values], value: float) -> Difference:
    """Where no resample differs from another: rates still have an interval, by Newcombe; other figures have none."""
    if not {float(each) for values in (*first, *second) for each in values} <= {0.0, 1.0}:
        return Difference(value, Interval(), 0.5 + math.copysign(0.5, value) if abs(value) > TINY else 0.5)
    means = [math.fsum(math.fsum(values) / len(values) for values in side) / len(side) for side in (first, second)]
    (low, high), (other_low, other_high) = _wilson_over_tasks(first), _wilson_over_tasks(second)
    assert low is not None and high is not None and other_low is not None and other_high is not None
    below, above = math.hypot(means[0] - low, other_high - means[1]), math.hypot(high - means[0], means[1] - other_low)
    random = np.random.default_rng(SEED)
    chance = float(np.mean(_posterior(first, random) > _posterior(second, random)))
    return Difference(value, Interval(value - below, value + above), chance)


def _posterior(tasks: Sequence[Values], random: np.random.Generator) -> Array:
    """Draws of a mean over tasks of rates, as Jeffreys' prior and the runs have it."""
    drawn = [random.beta(sum(v) + 0.5, len(v) - sum(v) + 0.5, RESAMPLES) for v in tasks]
    return np.asarray(np.mean(drawn, axis=0))


def _over_tasks(table: Array, random: np.random.Generator) -> Array:
    """Means over tasks drawn with putting back; a task drawn twice has its runs drawn anew."""
    tasks, count = table.shape
    total = np.zeros(count)
    for _ in range(tasks):
        total += table[random.integers(tasks, size=count), random.integers(count, size=count)]
    return np.asarray(total / tasks)


def ranks(entrants: Sequence[Sequence[Values]]) -> Array:
    """Chance of every rank (columns) for every entrant (rows): mean over tasks, resampled over tasks and runs.

    The tasks are drawn together for all. Entrants with the same mean share the better rank.
    """
    if not entrants:
        return np.empty((0, 0))
    random = np.random.default_rng(SEED)
    count = resamples(sum(len(values) for tasks in entrants for values in tasks))
    tables = [np.stack([_means(np.sort(np.asarray(v, float)), count, random) for v in tasks]) for tasks in entrants]
    tasks = len(entrants[0])
    totals = np.zeros((len(entrants), count))
    for _ in range(tasks):
        task = random.integers(tasks, size=count)
        for row, table in enumerate(tables):
            totals[row] += table[task, random.integers(count, size=count)]
    totals = np.round(totals / tasks, 12)  # sums in another order are no difference
    places = np.stack([(totals > own).sum(axis=0) for own in totals])
    return np.stack([np.bincount(row, minlength=len(entrants)) for row in places]) / count


def quantile(chances: Values, share: float) -> int:
    """The first place up to which the chances come to a share of all."""
    return min(int(np.searchsorted(np.cumsum(chances), share - TINY)), len(chances) - 1)


def profile(entrants: Mapping[str, Sequence[float | None]], distances: Values) -> dict[str, list[float]]:
    """Performance profile: the share of tasks on which an entrant is at most so far below the best of all.

    Differences, not ratios, so that figures may be negative. Whoever has no figure for a task is never near enough.
    """
    table = np.array([[math.nan if v is None else v for v in values] for values in entrants.values()], float)
    if not table.size:
        return {who: [0.0 for _ in distances] for who in entrants}
    known = np.where(np.isnan(table), -math.inf, table)
    best = known.max(axis=0)
    behind = np.where(np.isneginf(known), math.inf, best - np.where(np.isneginf(known), 0.0, known))
    near = [[float(np.mean(row <= distance + TINY)) for distance in distances] for row in behind]
    return dict(zip(entrants, near, strict=True))


def shares_above(tasks: Sequence[Sequence[float | None]], thresholds: Values) -> list[float]:
    """Score distribution: mean over tasks of the share of runs above each threshold; a run without figure never is."""
    above = [[sum(v is not None and v > t for v in values) / len(values) for t in thresholds] for values in tasks]
    return [math.fsum(column) / len(tasks) for column in zip(*above, strict=True)]


def rank_test(first: Values, second: Values) -> float:
    """Two-sided Mann-Whitney test: the chance of so uneven an order if both were alike. Infinite values may stand."""
    if not len(first) or not len(second):
        return 1.0
    from scipy import stats  # takes a second, and nothing else here needs it

    order = stats.rankdata([*first, *second])
    if np.ptp(order) == 0:
        return 1.0
    return float(min(stats.mannwhitneyu(order[: len(first)], order[len(first) :]).pvalue, 1.0))


def advantage(first: Values, second: Values) -> float:
    """The share of pairs in which the first is above; half for each tie."""
    pairs = [(one > other) + (one == other) / 2 for one in first for other in second]
    return sum(pairs) / len(pairs)


def holm(p_values: Values) -> list[float]:
    """Holm's correction: each as it holds when so many are looked at together."""
    adjusted, running = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = running
    return adjusted
