"""Error modes: in how many runs of each contestant each kind of finding occurs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlagentbench.analysis.runs import Run
from mlagentbench.pages.site.run_digest import RunDigest
from mlagentbench.pages.site.tables import DataTable
from mlagentbench.process.findings import rule_titles


@dataclass(frozen=True)
class ErrorModes:
    """Counts by kind and contestant, and of how many runs: faults and unfinished ones are not the agent's errors."""

    titles: Mapping[str, str]
    counts: Mapping[str, Counter[str]]
    runs: Mapping[str, int]

    def share(self, who: str, kind: str) -> float:
        """The share of its runs in which it occurs."""
        return self.counts[who][kind] / self.runs[who]

    def to_table(self) -> DataTable:
        """For programs."""
        rows = [
            {
                "kind": kind,
                "title": title,
                "who": who,
                "runs": self.runs[who],
                "found": self.counts[who][kind],
            }
            for kind, title in self.titles.items()
            for who in self.runs
        ]
        return DataTable("error-modes", "Runs in which a kind of error was found", rows)


def count_error_modes(runs: Sequence[Run], seen: Sequence[RunDigest], entrants: Sequence[str]) -> ErrorModes:
    """Count them; kinds that never occur are left to the table."""
    counts: dict[str, Counter[str]] = {who: Counter() for who in entrants}
    total: Counter[str] = Counter()
    for run, found in zip(runs, seen, strict=True):
        if run.result and not run.is_fault:
            total[run.agent_label] += 1
            counts[run.agent_label].update(found.finding_kinds)
    titles = rule_titles()
    occurring = Counter(
        kind for counter in counts.values() for kind, number in counter.items() for _ in range(number)
    )
    known = sorted(
        titles | {kind: kind for kind in occurring if kind not in titles}, key=lambda kind: -occurring[kind]
    )
    counted = {who: total[who] for who in entrants if total[who]}
    return ErrorModes({kind: titles.get(kind, kind) for kind in known}, counts, counted)
