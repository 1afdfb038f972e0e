"""The ranking of agents with its uncertainty, performance profiles, and distributions of improvements."""

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
# agent -> task -> success (0 or 1) and improvement of every run
Outcomes = Mapping[str, Mapping[str, Sequence[tuple[float, float | None]]]]


def order_agents(summary: Summary) -> list[str]:
    """All agents, best first: by success beyond noise, then by improvement, then by name."""
    cells = {cell.agent: cell for cell in summary.overall}

    def sort_key(agent: str) -> tuple[float, float, str]:
        rate, improvement = cells[agent].success_rate.value, cells[agent].improvement.value
        return (
            2.0 if rate is None else -rate,
            0.0 if improvement is None else -improvement,
            agent.lower(),
        )

    return sorted(summary.agents, key=sort_key)


def collect_outcomes(runs: Sequence[Run]) -> Outcomes:
    """Success and improvement of every run that has a baseline and no fault."""
    outcomes: dict[str, dict[str, list[tuple[float, float | None]]]] = {}
    for task, run in zip(label_runs(runs), runs, strict=True):
        result = run.result
        if result and not run.is_fault and run.spec.baseline:
            task_outcomes = outcomes.setdefault(run.agent_label, {}).setdefault(task, [])
            task_outcomes.append((float(result.success), result.improvement))
    return outcomes


@dataclass(frozen=True)
class Ranking:
    """Rank probabilities by success beyond noise on the tasks that all agents share, and all pairs."""

    agents: Sequence[str]
    tasks: int
    rank_probabilities: Sequence[Sequence[float]]
    pairs: Mapping[tuple[str, str], statistics.Difference]

    def mean_rank(self, index: int) -> float:
        """The mean rank of the agent at `index`."""
        return sum(rank * probability for rank, probability in enumerate(self.rank_probabilities[index], 1))

    def to_tables(self) -> list[DataTable]:
        """One table of ranks and one of pairs."""
        ranks = [
            {"agent": agent, "tasks": self.tasks, "mean rank": self.mean_rank(index)}
            | {f"rank {rank}": value for rank, value in enumerate(self.rank_probabilities[index], 1)}
            for index, agent in enumerate(self.agents)
        ]
        pairs = [
            {
                "first": first,
                "second": second,
                "difference in success": difference.value,
                "low": difference.interval.low,
                "high": difference.interval.high,
                "probability that the first is better": difference.chance,
            }
            for (first, second), difference in self.pairs.items()
        ]
        return [
            DataTable("ranks", "Probability of each rank by success beyond noise", ranks),
            DataTable("pairs", "Pairwise comparison of agents", pairs),
        ]


def rank_agents(outcomes: Outcomes, agents: Sequence[str]) -> Ranking | None:
    """Rank the agents; None unless at least two agents have a task in common."""
    ranked = [agent for agent in agents if agent in outcomes]
    shared = sorted(set.intersection(*(set(outcomes[agent]) for agent in ranked))) if len(ranked) > 1 else []
    if not shared:
        return None
    successes = {
        agent: [[success for success, _ in outcomes[agent][task]] for task in shared] for agent in ranked
    }
    pairs = {
        (first, second): statistics.paired_difference(successes[first], successes[second])
        for index, first in enumerate(ranked)
        for second in ranked[index + 1 :]
    }
    probabilities = statistics.rank_probabilities(list(successes.values()))
    return Ranking(ranked, len(shared), probabilities.tolist(), pairs)


def performance_profiles(summary: Summary, agents: Sequence[str]) -> dict[str, Curve]:
    """For each agent, the fraction of tasks on which its mean improvement is within x of the best agent's."""
    cells = {(cell.task, cell.agent): cell.improvement.value for cell in summary.cells}
    values = {agent: [cells.get((task, agent)) for task in summary.tasks] for agent in agents}
    profiles = statistics.performance_profile(values, PROFILE_DISTANCES.tolist())
    return {agent: Curve(PROFILE_DISTANCES.tolist(), shares) for agent, shares in profiles.items()}


def improvement_distributions(outcomes: Outcomes, agents: Sequence[str]) -> dict[str, Curve]:
    """For each agent, the fraction of runs that improve by more than x, averaged over tasks."""
    thresholds = IMPROVEMENT_THRESHOLDS.tolist()
    curves = {}
    for agent in agents:
        if agent in outcomes:
            improvements = [[value for _, value in task] for task in outcomes[agent].values()]
            curves[agent] = Curve(thresholds, statistics.shares_above(improvements, thresholds))
    return curves


def profile_table(profiles: Mapping[str, Curve], distributions: Mapping[str, Curve]) -> DataTable:
    """The points of profiles and distributions."""
    named_curves = (
        ("tasks within x of the best", profiles),
        ("runs that improve by more than x", distributions),
    )
    rows = [
        {"curve": name, "agent": agent, "x": x, "share": y}
        for name, curves in named_curves
        for agent, curve in curves.items()
        for x, y in zip(curve.x, curve.y, strict=True)
    ]
    return DataTable("profile", "Performance profile and distribution of improvements", rows)
