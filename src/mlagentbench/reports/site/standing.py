"""Who is ahead, how sure that is, and how near everybody comes to the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlagentbench.reports import statistics
from mlagentbench.reports.figures.lines import Line
from mlagentbench.reports.metrics import Summary
from mlagentbench.reports.runs import Run
from mlagentbench.reports.settings import labels
from mlagentbench.reports.site.tables import Table

DISTANCES = np.linspace(0.0, 1.0, 101)
THRESHOLDS = np.linspace(-0.5, 1.0, 151)
Outcomes = Mapping[str, Mapping[str, Sequence[tuple[float, float | None]]]]  # contestant, task: success, improvement


def order(summary: Summary) -> list[str]:
    """Contestants from the best on: by success beyond noise, then by improvement, then by name."""
    cells = {cell.who: cell for cell in summary.overall}

    def rank(who: str) -> tuple[float, float, str]:
        rate, gain = cells[who].success_rate.value, cells[who].improvement.value
        return (2.0 if rate is None else -rate), (0.0 if gain is None else -gain), who.lower()

    return sorted(summary.entrants, key=rank)


def outcomes(runs: Sequence[Run]) -> Outcomes:
    """What every judged run came to."""
    found: dict[str, dict[str, list[tuple[float, float | None]]]] = {}
    for task, run in zip(labels(runs), runs, strict=True):
        result = run.result
        if result and not run.fault and run.spec.baseline:
            own = found.setdefault(run.who, {}).setdefault(task, [])
            own.append((float(result.success), result.improvement))
    return found


@dataclass(frozen=True)
class Standing:
    """Ranks by success beyond noise on the tasks that all share, each with its chance, and every pair compared."""

    entrants: Sequence[str]
    tasks: int
    chances: Sequence[Sequence[float]]
    pairs: Mapping[tuple[str, str], statistics.Difference]

    def expected(self, place: int) -> float:
        """The mean rank of a contestant."""
        return sum(rank * chance for rank, chance in enumerate(self.chances[place], 1))

    def tables(self) -> list[Table]:
        """For programs."""
        ranks = [
            {"who": who, "tasks": self.tasks, "mean rank": self.expected(place)}
            | {f"rank {number}": chance for number, chance in enumerate(self.chances[place], 1)}
            for place, who in enumerate(self.entrants)
        ]
        pairs = [
            {"first": first, "second": second, "difference in success": found.value, "low": found.interval.low}
            | {"high": found.interval.high, "chance that the first is better": found.chance}
            for (first, second), found in self.pairs.items()
        ]
        return [
            Table("ranks", "Chance of each rank by success beyond noise", ranks),
            Table("pairs", "Contestants compared", pairs),
        ]


def standing(found: Outcomes, entrants: Sequence[str]) -> Standing | None:
    """The ranks, if at least two contestants have a task in common."""
    known = [who for who in entrants if who in found]
    shared = sorted(set.intersection(*(set(found[who]) for who in known))) if len(known) > 1 else []
    if not shared:
        return None
    values = {who: [[success for success, _ in found[who][task]] for task in shared] for who in known}
    pairs = {
        (one, other): statistics.paired(values[one], values[other])
        for place, one in enumerate(known)
        for other in known[place + 1 :]
    }
    return Standing(known, len(shared), statistics.ranks(list(values.values())).tolist(), pairs)


def profiles(summary: Summary, entrants: Sequence[str]) -> dict[str, Line]:
    """The share of tasks on which each contestant's improvement is at most so far below the best one's."""
    cells = {(cell.task, cell.who): cell.improvement.value for cell in summary.cells}
    values = {who: [cells.get((task, who)) for task in summary.tasks] for who in entrants}
    found = statistics.profile(values, DISTANCES.tolist())
    return {who: Line(DISTANCES.tolist(), shares) for who, shares in found.items()}


def distributions(found: Outcomes, entrants: Sequence[str]) -> dict[str, Line]:
    """Mean over tasks of the share of runs that improve by more than so much."""
    lines = {}
    for who in (who for who in entrants if who in found):
        gains = [[gain for _, gain in task] for task in found[who].values()]
        lines[who] = Line(THRESHOLDS.tolist(), statistics.shares_above(gains, THRESHOLDS.tolist()))
    return lines


def table(near: Mapping[str, Line], above: Mapping[str, Line]) -> Table:
    """Both curves for programs."""
    rows = [
        {"curve": name, "who": who, "x": x, "share": y}
        for name, lines in (("tasks within x of the best", near), ("runs that improve by more than x", above))
        for who, line in lines.items()
        for x, y in zip(line.x, line.y, strict=True)
    ]
    return Table("profile", "Performance profile and distribution of improvements", rows)
