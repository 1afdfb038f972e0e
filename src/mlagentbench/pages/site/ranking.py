"""The ranking of agents with its uncertainty, performance profiles, and distributions of values.

All use progress where the levels of every task are known, and otherwise success and improvement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from mlagentbench.analysis import statistics
from mlagentbench.analysis.metrics import Summary
from mlagentbench.analysis.progress import knows_progress
from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import label_runs
from mlagentbench.pages.figures.lines import Curve
from mlagentbench.pages.site.tables import DataTable

PROFILE_DISTANCES = np.linspace(0.0, 1.0, 101)
THRESHOLDS = np.linspace(-0.5, 1.5, 201)
Yardstick = Literal["progress", "improvement"]


class Outcome(NamedTuple):
    """What one run achieved; the values are None without a valid submission, or if they are not known."""

    success: float  # 0 or 1
    improvement: float | None
    progress: float | None


Outcomes = Mapping[str, Mapping[str, Sequence[Outcome]]]  # agent -> task -> runs


def choose_yardstick(runs: Sequence[Run]) -> Yardstick:
    """Progress if the levels of every judged run are known, else improvement."""
    judged = [run.spec for run in runs if run.result and not run.is_fault and run.spec.baseline]
    return "progress" if judged and all(map(knows_progress, judged)) else "improvement"


def order_agents(summary: Summary, yardstick: Yardstick) -> list[str]:
    """All agents, best first: by progress or by success beyond noise, then by improvement, then by name."""
    cells = {cell.agent: cell for cell in summary.overall}

    def sort_key(agent: str) -> tuple[bool, float, float, str]:
        cell = cells[agent]
        first = cell.progress.value if yardstick == "progress" else cell.success_rate.value
        improvement = cell.improvement.value
        return first is None, -(first or 0.0), -(improvement or 0.0), agent.lower()

    return sorted(summary.agents, key=sort_key)


def collect_outcomes(runs: Sequence[Run]) -> Outcomes:
    """What every run with a baseline and without a fault achieved."""
    outcomes: dict[str, dict[str, list[Outcome]]] = {}
    for task, run in zip(label_runs(runs), runs, strict=True):
        result = run.result
        if result and not run.is_fault and run.spec.baseline:
            task_outcomes = outcomes.setdefault(run.agent_label, {}).setdefault(task, [])
            task_outcomes.append(Outcome(float(bool(result.success)), result.improvement, result.progress))
    return outcomes


@dataclass(frozen=True)
class Ranking:
    """Rank probabilities on the tasks that all agents share, and all pairs.

    The agents are ranked by `ranked_by`: "progress" or "success".
    """

    ranked_by: str
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
                f"difference in {self.ranked_by}": difference.value,
                "low": difference.interval.low,
                "high": difference.interval.high,
                "probability that the first is better": difference.chance,
            }
            for (first, second), difference in self.pairs.items()
        ]
        return [
            DataTable("ranks", f"Probability of each rank by {self.ranked_by}", ranks),
            DataTable("pairs", "Pairwise comparison of agents", pairs),
        ]


def rank_agents(outcomes: Outcomes, agents: Sequence[str], yardstick: Yardstick) -> Ranking | None:
    """Rank the agents; None unless at least two agents have a task in common."""
    ranked = [agent for agent in agents if agent in outcomes]
    shared = sorted(set.intersection(*(set(outcomes[agent]) for agent in ranked))) if len(ranked) > 1 else []
    if not shared:
        return None
    by_progress = yardstick == "progress"
    values = {
        agent: [
            [(run.progress or 0.0) if by_progress else run.success for run in outcomes[agent][task]]
            for task in shared
        ]
        for agent in ranked
    }
    pairs = {
        (first, second): statistics.paired_difference(values[first], values[second])
        for index, first in enumerate(ranked)
        for second in ranked[index + 1 :]
    }
    probabilities = statistics.rank_probabilities(list(values.values()))
    ranked_by = "progress" if by_progress else "success"
    return Ranking(ranked_by, ranked, len(shared), probabilities.tolist(), pairs)


def performance_profiles(summary: Summary, agents: Sequence[str], yardstick: Yardstick) -> dict[str, Curve]:
    """For each agent, the fraction of tasks on which its mean is within x of the best agent's."""
    by_progress = yardstick == "progress"
    cells = {
        (cell.task, cell.agent): (cell.progress if by_progress else cell.improvement).value
        for cell in summary.cells
    }
    values = {agent: [cells.get((task, agent)) for task in summary.tasks] for agent in agents}
    profiles = statistics.performance_profile(values, PROFILE_DISTANCES.tolist())
    return {agent: Curve(PROFILE_DISTANCES.tolist(), shares) for agent, shares in profiles.items()}


def value_distributions(outcomes: Outcomes, agents: Sequence[str], yardstick: Yardstick) -> dict[str, Curve]:
    """For each agent, the fraction of runs with a progress or improvement above x, averaged over tasks."""
    thresholds = THRESHOLDS.tolist()
    curves = {}
    for agent in agents:
        if agent in outcomes:
            values = [[getattr(run, yardstick) for run in task] for task in outcomes[agent].values()]
            curves[agent] = Curve(thresholds, statistics.shares_above(values, thresholds))
    return curves


def profile_table(profiles: Mapping[str, Curve], distributions: Mapping[str, Curve]) -> DataTable:
    """The points of profiles and distributions."""
    named_curves = (
        ("tasks within x of the best", profiles),
        ("runs above x", distributions),
    )
    rows = [
        {"curve": name, "agent": agent, "x": x, "share": y}
        for name, curves in named_curves
        for agent, curve in curves.items()
        for x, y in zip(curve.x, curve.y, strict=True)
    ]
    return DataTable("profile", "Performance profile and distribution", rows)
