"""Agreement between two judgements of the same runs."""

from collections.abc import Iterable

from mlagentbench.analysis.runs import Run
from mlagentbench.process.judgements import read_judgements
from mlagentbench.records import Record


class Agreement(Record):
    """Share of equal scores, share that differ by at most one, and Cohen's kappa with quadratic weights."""

    runs: int
    scores: int
    exact: float
    within_one: float
    kappa: float | None


def measure_agreement(runs: Iterable[Run]) -> Agreement | None:
    """The agreement over all runs with at least two judgements; None if there are none."""
    judgements = [judged for run in runs if (judged := read_judgements(run))]
    pairs_by_run = [judged.score_pairs for judged in judgements if judged.score_pairs]
    pairs = [pair for run_pairs in pairs_by_run for pair in run_pairs]
    if not pairs:
        return None
    distances = [abs(first - second) for first, second in pairs]
    return Agreement(
        runs=len(pairs_by_run),
        scores=len(pairs),
        exact=sum(distance == 0 for distance in distances) / len(distances),
        within_one=sum(distance <= 1 for distance in distances) / len(distances),
        kappa=weighted_kappa(pairs),
    )


def weighted_kappa(pairs: list[tuple[int, int]]) -> float | None:
    """Cohen's kappa with quadratic weights; None if all scores are equal, where it is undefined."""
    observed = sum((first - second) ** 2 for first, second in pairs) / len(pairs)
    expected = sum((first - second) ** 2 for first, _ in pairs for _, second in pairs) / len(pairs) ** 2
    return 1 - observed / expected if expected else None
