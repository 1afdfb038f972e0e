"""Who is ahead, how sure that is, and how near everybody comes to the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlagentbench.analysis import statistics
from mlagentbench.analysis.metrics import Summary
from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import label_runs
from mlagentbench.pages.figures.lines import Curve
from mlagentbench.pages.site.tables import DataTable

PROFILE_DISTANCES = np.linspace(0.0, 1.0, 101)
IMPROVEMENT_THRESHOLDS = np.linspace(-0.5, 1.0, 151)
Outcomes = Mapping[
    str, Mapping[str, Sequence[tuple[float, float | None]]]
]  # contestant, task: success, improvement


def order_agents(summary: Summary) -> list[str]:
    """Contestants from the best on: by success beyond noise, then by improvement, then by name."""
    cells = {cell.agent: cell for cell in summary.overall}

    def rank(who: str) -> tuple[float, float, str]:
        rate, gain = cells[who].success_rate.value, cells[who].improvement.value
        return (2.0 if rate is None else -rate), (0.0 if gain is None else -gain), who.lower()

    return sorted(summary.agents, key=rank)


def collect_outcomes(runs: Sequence[Run]) -> Outcomes:
    """What every judged run came to."""
    found: dict[str, dict[str, list[tuple[float, float | None]]]] = {}
    for task, run in zip(label_runs(runs), runs, strict=True):
        result = run.result
        if result and not run.is_fault and run.spec.baseline:
            own = found.setdefault(run.agent_label, {}).setdefault(task, [])
            own.append((float(result.success), result.improvement))
    return found


@dataclass(frozen=True)
class Ranking:
    """Ranks by success beyond noise on the tasks that all share, each with its chance, and every pair compared."""

    agents: Sequence[str]
    tasks: int
    rank_probabilities: Sequence[Sequence[float]]
    pairs: Mapping[tuple[str, str], statistics.Difference]

    def mean_rank(self, place: int) -> float:
        """The mean rank of a contestant."""
        return sum(rank * chance for rank, chance in enumerate(self.rank_probabilities[place], 1))

    def to_tables(self) -> list[DataTable]:
        """For programs."""
        ranks = [
            {"who": who, "tasks": self.tasks, "mean rank": self.mean_rank(place)}
            | {f"rank {number}": chance for number, chance in enumerate(self.rank_probabilities[place], 1)}
            for place, who in enumerate(self.agents)
        ]
        pairs = [
            {
                "first": first,
                "second": second,
                "difference in success": found.value,
                "low": found.interval.low,
            }
            | {"high": found.interval.high, "chance that the first is better": found.chance}
            for (first, second), found in self.pairs.items()
        ]
        return [
            DataTable("ranks", "Chance of each rank by success beyond noise", ranks),
            DataTable("pairs", "Contestants compared", pairs),
        ]


def rank_agents(found: Outcomes, entrants: Sequence[str]) -> Ranking | None:
    """The ranks, if at least two contestants have a task in common."""
    known = [who for who in entrants if who in found]
    shared = sorted(set.intersection(*(set(found[who]) for who in known))) if len(known) > 1 else []
    if not shared:
        return None
    values = {who: [[success for success, _ in found[who][task]] for task in shared] for who in known}
    pairs = {
        (one, other): statistics.paired_difference(values[one], values[other])
        for place, one in enumerate(known)
        for other in known[place + 1 :]
    }
    return Ranking(known, len(shared), statistics.rank_probabilities(list(values.values())).tolist(), pairs)


def performance_profiles(summary: Summary, entrants: Sequence[str]) -> dict[str, Curve]:
    """The share of tasks on which each contestant's improvement is at most so far below the best one's."""
    cells = {(cell.task, cell.agent): cell.improvement.value for cell in summary.cells}
    values = {who: [cells.get((task, who)) for task in summary.tasks] for who in entrants}
    found = statistics.performance_profile(values, PROFILE_DISTANCES.tolist())
    return {who: Curve(PROFILE_DISTANCES.tolist(), shares) for who, shares in found.items()}


def improvement_distributions(found: Outcomes, entrants: Sequence[str]) -> dict[str, Curve]:
    """Mean over tasks of the share of runs that improve by more than so much."""
    lines = {}
    for who in (who for who in entrants if who in found):
        gains = [[gain for _, gain in task] for task in found[who].values()]
        lines[who] = Curve(
            IMPROVEMENT_THRESHOLDS.tolist(), statistics.shares_above(gains, IMPROVEMENT_THRESHOLDS.tolist())
        )
    return lines


def profile_table(near: Mapping[str, Curve], above: Mapping[str, Curve]) -> DataTable:
    """Both curves for programs."""
    rows = [
        {"curve": name, "who": who, "x": x, "share": y}
        for name, lines in (("tasks within x of the best", near), ("runs that improve by more than x", above))
        for who, line in lines.items()
        for x, y in zip(line.x, line.y, strict=True)
    ]
    return DataTable("profile", "Performance profile and distribution of improvements", rows)
