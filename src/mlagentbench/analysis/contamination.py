"""Contamination check: compares results on public data with those on fresh instances and relabeled twins."""

from collections import defaultdict
from collections.abc import Sequence

from mlagentbench.analysis import statistics
from mlagentbench.analysis.metrics import RunValues
from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import SHORT_HASH_DIGITS
from mlagentbench.records import DataKind, Record

MIN_SAMPLES = 3  # runs on each side, or tasks; with fewer, a bootstrap interval can have zero width
# In units of improvement: smaller differences can come from the data split and the starter's own mean.
SUSPICION_MARGIN = 0.02


class ContaminationGap(Record):
    """Mean improvement of one agent on public data and on data from a hidden seed, and their difference.

    An invalid submission counts as an improvement of 0. An empty `task` is the mean over tasks with both.
    """

    task: str
    agent: str
    kind: DataKind  # of the other data
    public: float
    other: float
    public_runs: int
    other_runs: int
    difference: float
    low: float | None  # 95 % interval, resampled over runs and tasks; None with too few samples
    high: float | None
    chance: float  # probability that the agent does better on the public data

    @property
    def suspicious(self) -> bool:
        """Whether the agent does better on the public data by more than the margin, beyond chance."""
        return self.low is not None and self.low > SUSPICION_MARGIN


ImprovementsByKind = dict[DataKind, list[float]]


def compute_contamination_gaps(runs: Sequence[Run]) -> tuple[ContaminationGap, ...]:
    """One gap per agent, kind of hidden data and task with both kinds of runs; and the mean over tasks."""
    by_agent: dict[str, dict[str, ImprovementsByKind]] = defaultdict(dict)
    for (agent, task), improvements in sorted(_group_improvements(runs).items()):
        by_agent[agent][task] = improvements
    gaps = []
    for agent, tasks in by_agent.items():
        for kind in ("fresh", "twin"):
            pairs = {
                task: (by_kind["public"], by_kind[kind])
                for task, by_kind in tasks.items()
                if by_kind["public"] and by_kind[kind]
            }
            gaps += [_compute_gap(task, agent, kind, [pair]) for task, pair in pairs.items()]
            if len(pairs) > 1:
                gaps.append(_compute_gap("", agent, kind, list(pairs.values())))
    return tuple(gaps)


def _group_improvements(runs: Sequence[Run]) -> dict[tuple[str, str], ImprovementsByKind]:
    """Improvements by agent and task; another edition or grader makes another task."""
    groups: dict[tuple[str, str, str, str], dict[DataKind, list[Run]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for run in runs:
        if run.spec.kind:
            key = (run.agent_label, run.task, run.spec.edition, run.spec.hashes.grader)
            groups[key][run.spec.kind].append(run)
    graders: dict[tuple[str, str], set[str]] = defaultdict(set)
    for _, task, edition, grader in groups:
        graders[task, edition].add(grader)
    improvements: dict[tuple[str, str], ImprovementsByKind] = {}
    for (agent, task, edition, grader), by_kind in groups.items():
        suffix = f", grader {grader[:SHORT_HASH_DIGITS]}" if len(graders[task, edition]) > 1 else ""
        improvements[agent, f"{task} ({edition}{suffix})"] = {
            kind: _improvements(by_kind[kind]) for kind in ("public", "fresh", "twin")
        }
    return improvements


def _improvements(runs: Sequence[Run]) -> list[float]:
    return [result.improvement or 0.0 for result in RunValues(runs).judged]


def _compute_gap(
    task: str, agent: str, kind: DataKind, pairs: Sequence[tuple[list[float], list[float]]]
) -> ContaminationGap:
    first, second = [public for public, _ in pairs], [other for _, other in pairs]
    difference = statistics.paired_difference(first, second)
    has_enough = len(pairs) >= MIN_SAMPLES or min(map(len, first + second)) >= MIN_SAMPLES
    return ContaminationGap(
        task=task,
        agent=agent,
        kind=kind,
        public=_mean_over_tasks(first),
        other=_mean_over_tasks(second),
        public_runs=sum(map(len, first)),
        other_runs=sum(map(len, second)),
        difference=difference.value,
        low=difference.interval.low if has_enough else None,
        high=difference.interval.high if has_enough else None,
        chance=difference.chance,
    )


def _mean_over_tasks(tasks: Sequence[Sequence[float]]) -> float:
    return sum(sum(values) / len(values) for values in tasks) / len(tasks)
