"""Error modes: in how many runs of each contestant each kind of finding occurs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlagentbench.reports.process.findings import kinds
from mlagentbench.reports.runs import Run
from mlagentbench.reports.site.seen import Seen
from mlagentbench.reports.site.tables import Table


@dataclass(frozen=True)
class Modes:
    """Counts by kind and contestant, and of how many runs: faults and unfinished ones are not the agent's errors."""

    titles: Mapping[str, str]
    counts: Mapping[str, Counter[str]]
    runs: Mapping[str, int]

    def share(self, who: str, kind: str) -> float:
        """The share of its runs in which it occurs."""
        return self.counts[who][kind] / self.runs[who]

    def table(self) -> Table:
        """For programs."""
        rows = [
            {"kind": kind, "title": title, "who": who, "runs": self.runs[who], "found": self.counts[who][kind]}
            for kind, title in self.titles.items()
            for who in self.runs
        ]
        return Table("error-modes", "Runs in which a kind of error was found", rows)


def modes(runs: Sequence[Run], seen: Sequence[Seen], entrants: Sequence[str]) -> Modes:
    """Count them; kinds that never occur are left to the table."""
    counts: dict[str, Counter[str]] = {who: Counter() for who in entrants}
    total: Counter[str] = Counter()
    for run, found in zip(runs, seen, strict=True):
        if run.result and not run.fault:
            total[run.who] += 1
            counts[run.who].update(found.kinds)
    titles = kinds()
    occurring = Counter(kind for counter in counts.values() for kind, number in counter.items() for _ in range(number))
    known = sorted(titles | {kind: kind for kind in occurring if kind not in titles}, key=lambda kind: -occurring[kind])
    counted = {who: total[who] for who in entrants if total[who]}
    return Modes({kind: titles.get(kind, kind) for kind in known}, counts, counted)
