"""Whether who did well had seen the data before: public instances held against fresh ones and relabelled twins."""

from collections import defaultdict
from collections.abc import Sequence

from mlagentbench.analysis import statistics
from mlagentbench.analysis.metrics import RunValues
from mlagentbench.analysis.runs import Run
from mlagentbench.records import DataKind, Record

MIN_SAMPLES = 3  # runs on either side, or tasks: from fewer, a bootstrap draws an interval of no width
SUSPICION_MARGIN = (
    0.02  # of improvement: so much may lie in how rows are split, and in the starter's own mean
)


class ContaminationGap(Record):
    """Mean improvement of one contestant on public data and on data of a hidden seed, and the first minus the second.

    An invalid submission counts as no improvement. Without a task it is the mean over all tasks that have both.
    """

    task: str
    agent: str
    kind: DataKind  # of the other data
    public: float
    other: float
    public_runs: int
    other_runs: int
    difference: float
    low: float | None  # of a 95 % interval, drawn over runs and tasks, if there are enough
    high: float | None
    chance: float  # that the public one goes better

    @property
    def suspicious(self) -> bool:
        """Whether chance does not explain that the public data goes better, and by more than a trifle."""
        return self.low is not None and self.low > SUSPICION_MARGIN


ImprovementsByKind = dict[DataKind, list[float]]


def compute_contamination_gaps(runs: Sequence[Run]) -> tuple[ContaminationGap, ...]:
    """A gap for each contestant, each kind of other data, and each task that has both; and the mean over tasks."""
    found: dict[str, dict[str, ImprovementsByKind]] = defaultdict(dict)
    for (who, task), gains in sorted(_group_improvements(runs).items()):
        found[who][task] = gains
    gaps = []
    for who, tasks in found.items():
        for kind in ("fresh", "twin"):
            both = {
                task: (own["public"], own[kind]) for task, own in tasks.items() if own["public"] and own[kind]
            }
            gaps += [_compute_gap(task, who, kind, [pair]) for task, pair in both.items()]
            if len(both) > 1:
                gaps.append(_compute_gap("", who, kind, list(both.values())))
    return tuple(gaps)


def _group_improvements(runs: Sequence[Run]) -> dict[tuple[str, str], ImprovementsByKind]:
    """Improvements by contestant and task, which is another one with another edition or grader."""
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
    found: dict[tuple[str, str], ImprovementsByKind] = {}
    for (who, task, edition, grader), kinds in groups.items():
        apart = f", grader {grader[:8]}" if len(graders[task, edition]) > 1 else ""
        found[who, f"{task} ({edition}{apart})"] = {
            kind: _improvements(kinds[kind]) for kind in ("public", "fresh", "twin")
        }
    return found


def _improvements(runs: Sequence[Run]) -> list[float]:
    return [result.improvement or 0.0 for result in RunValues(runs).judged]


def _compute_gap(
    task: str, who: str, kind: DataKind, pairs: Sequence[tuple[list[float], list[float]]]
) -> ContaminationGap:
    first, second = [public for public, _ in pairs], [other for _, other in pairs]
    found = statistics.paired_difference(first, second)
    enough = len(pairs) >= MIN_SAMPLES or min(map(len, first + second)) >= MIN_SAMPLES
    return ContaminationGap(
        task=task,
        agent=who,
        kind=kind,
        public=_mean_over_tasks(first),
        other=_mean_over_tasks(second),
        public_runs=sum(map(len, first)),
        other_runs=sum(map(len, second)),
        difference=found.value,
        low=found.interval.low if enough else None,
        high=found.interval.high if enough else None,
        chance=found.chance,
    )


def _mean_over_tasks(tasks: Sequence[Sequence[float]]) -> float:
    return sum(sum(values) / len(values) for values in tasks) / len(tasks)
