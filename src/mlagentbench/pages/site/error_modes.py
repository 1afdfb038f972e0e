"""Error modes: the number of runs of each agent in which each kind of finding occurs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlagentbench.analysis.runs import Run
from mlagentbench.pages.site.run_digest import RunDigest
from mlagentbench.pages.site.tables import DataTable
from mlagentbench.process.findings import rule_titles


@dataclass(frozen=True)
class ErrorModes:
    """Counts by agent and kind; faults and unfinished runs are not the agent's errors and are excluded."""

    titles: Mapping[str, str]  # kind -> title, most frequent first
    counts: Mapping[str, Counter[str]]  # agent -> kind -> runs
    runs: Mapping[str, int]  # agent -> counted runs

    def share(self, agent: str, kind: str) -> float:
        """The fraction of an agent's runs in which a kind occurs."""
        return self.counts[agent][kind] / self.runs[agent]

    def most_frequent(self, agent: str, count: int = 3) -> list[tuple[str, float]]:
        """The titles and shares of an agent's most frequent errors."""
        kinds = [kind for kind, runs in self.counts[agent].most_common(count) if runs]
        return [(self.titles[kind], self.share(agent, kind)) for kind in kinds]

    def to_table(self) -> DataTable:
        """Counts by kind and agent."""
        rows = [
            {
                "kind": kind,
                "title": title,
                "agent": agent,
                "runs": self.runs[agent],
                "found": self.counts[agent][kind],
            }
            for kind, title in self.titles.items()
            for agent in self.runs
        ]
        return DataTable("error-modes", "Number of runs with each kind of error", rows)


def count_error_modes(runs: Sequence[Run], digests: Sequence[RunDigest], agents: Sequence[str]) -> ErrorModes:
    """Count the findings of all runs; kinds that never occur are included with zero."""
    counts: dict[str, Counter[str]] = {agent: Counter() for agent in agents}
    runs_by_agent: Counter[str] = Counter()
    for run, digest in zip(runs, digests, strict=True):
        if run.result and not run.is_fault:
            runs_by_agent[run.agent_label] += 1
            counts[run.agent_label].update(digest.finding_kinds)
    titles = rule_titles()
    totals = sum(counts.values(), Counter[str]())
    kinds = sorted(
        [*titles, *(kind for kind in totals if kind not in titles)], key=lambda kind: -totals[kind]
    )
    counted_runs = {agent: runs_by_agent[agent] for agent in agents if runs_by_agent[agent]}
    return ErrorModes({kind: titles.get(kind, kind) for kind in kinds}, counts, counted_runs)
