"""How far two judgings of the same runs agree."""

from collections.abc import Iterable

from mlagentbench.analysis.runs import Run
from mlagentbench.process.judgements import read_judgements
from mlagentbench.records import Record


class Agreement(Record):
    """Shares of scores that are the same, and at most one apart; Cohen's kappa with quadratic weights."""

    runs: int
    scores: int
    exact: float
    within_one: float
    kappa: float | None


def measure_agreement(runs: Iterable[Run]) -> Agreement | None:
    """Over all runs that were judged twice; None if there are none."""
    judged = [found.score_pairs for run in runs if (found := read_judgements(run)) and found.score_pairs]
    pairs = [pair for each in judged for pair in each]
    if not pairs:
        return None
    apart = [abs(one - other) for one, other in pairs]
    exact, near = (sum(gap <= most for gap in apart) / len(apart) for most in (0, 1))
    return Agreement(
        runs=len(judged), scores=len(pairs), exact=exact, within_one=near, kappa=weighted_kappa(pairs)
    )


def weighted_kappa(pairs: list[tuple[int, int]]) -> float | None:
    """Cohen's kappa, where a disagreement weighs as the square of its distance; None where chance alone would agree."""
    seen = sum((one - other) ** 2 for one, other in pairs) / len(pairs)
    by_chance = sum((one - other) ** 2 for one, _ in pairs for _, other in pairs) / len(pairs) ** 2
    return 1 - seen / by_chance if by_chance else None
