"""What many runs come to: one cell for each task and entrant, and each entrant over all tasks. Faults count apart."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from mlagentbench.analysis import statistics
from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import Setting, collect_settings, collect_warnings, label_runs
from mlagentbench.analysis.statistics import Interval
from mlagentbench.analysis.validation import compute_validation_gap
from mlagentbench.records import Record

REPORTED_KS = (1, 2, 3, 4, 5, 8, 10, 16, 32, 64, 100)


class Estimate(Record):
    """A figure with its 95 % interval, and of how many runs (overall: tasks) it is; no value if there are none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0


class Spend(Record):
    """What something took."""

    seconds: float
    tokens: float
    dollars: float


class Cell(Record):
    """Runs of one entrant on one task; overall (`task` is empty) counts are sums and figures are means over tasks."""

    task: str
    agent: str
    tasks: int = 1
    runs: int  # all of them
    counted: int  # neither faults nor unfinished
    judged: int  # counted, and a baseline is known: of these are the rates
    valid: int
    improved: int
    success: int
    faults: int
    unfinished: int
    unsandboxed: int
    violations: int  # runs that broke a rule of the task
    improved_rate: Estimate  # the paper's rule
    success_rate: Estimate  # with the noise test as well
    valid_rate: Estimate
    improvement: Estimate  # mean among valid submissions
    best: float | None  # improvement
    best_of: dict[int, float]  # expected best improvement of k valid submissions
    pass_at_k: dict[int, float]  # chance that at least one of k runs is a success
    score: Estimate  # mean among valid submissions; none overall, where units differ
    per_run: Spend | None
    per_success: Spend | None
    validation_gap: Estimate  # how much better the figure that the agent saw looked than the score is


class Summary(Record):
    """All of it."""

    cells: tuple[Cell, ...]
    tasks: tuple[str, ...]
    agents: tuple[str, ...]
    overall: tuple[Cell, ...]
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]

    def cell(self, task: str, agent: str) -> Cell | None:
        """One of them, if it has any runs."""
        return next((cell for cell in self.cells if (cell.task, cell.agent) == (task, agent)), None)


class RunValues:
    """The runs of a cell as numbers."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.counted = [run.result for run in runs if run.result and not run.is_fault]
        self.judged = [run.result for run in runs if run.result and not run.is_fault and run.spec.baseline]
        self.improved = [float(bool(result.improved)) for result in self.judged]
        self.success = [float(result.success) for result in self.judged]
        self.valid = [float(result.valid) for result in self.counted]
        self.improvements = [result.improvement for result in self.judged if result.improvement is not None]
        self.scores = [result.score for result in self.counted if result.score is not None]

    @cached_property
    def validation_gaps(self) -> list[float]:
        """How much too hopeful each was; whole traces are read for it."""
        return [found for found in map(compute_validation_gap, self.runs) if found is not None]

    @property
    def improvements_or_zero(self) -> list[float]:
        """Improvements for a mean over tasks, where a task without a valid submission has improved by nothing."""
        return self.improvements or ([] if any(self.valid) or not self.judged else [0.0])

    @property
    def total_spend(self) -> Spend:
        """What all counted runs took."""
        return Spend(
            seconds=sum(result.seconds for result in self.counted),
            tokens=sum(result.tokens for result in self.counted),
            dollars=sum(result.dollars for result in self.counted),
        )


def summarize_runs(runs: Sequence[Run]) -> Summary:
    """Every figure of every task and entrant, and over all tasks; runs in different settings are never mixed."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for task, run in zip(label_runs(runs), runs, strict=True):
        groups[task, run.agent_label].append(run)
    tasks = sorted({task for task, _ in groups}, key=str.lower)
    entrants = sorted({who for _, who in groups}, key=str.lower)
    numbers = {
        place: RunValues(groups[place])
        for place in sorted(groups, key=lambda place: (place[0].lower(), place[1]))
    }
    cells = {place: build_cell(*place, found) for place, found in numbers.items()}
    overall = []
    for who in entrants:
        own = [place for place in cells if place[1] == who]
        overall.append(
            _build_overall_cell(who, [cells[place] for place in own], [numbers[place] for place in own])
        )
    found = collect_settings(runs)
    return Summary(
        cells=tuple(cells.values()),
        tasks=tuple(tasks),
        agents=tuple(entrants),
        overall=tuple(overall),
        settings=found,
        warnings=(*collect_warnings(found), *_caveat_warnings(overall, len(tasks))),
    )


def build_cell(task: str, agent: str, values: RunValues) -> Cell:
    """The figures of one cell."""
    total = values.total_spend
    return Cell(
        task=task,
        agent=agent,
        runs=len(values.runs),
        counted=len(values.counted),
        judged=len(values.judged),
        valid=int(sum(values.valid)),
        improved=int(sum(values.improved)),
        success=int(sum(values.success)),
        faults=sum(run.is_fault for run in values.runs),
        unfinished=sum(run.result is None for run in values.runs),
        unsandboxed=sum(run.spec.sandbox == "none" for run in values.runs),
        violations=sum(bool(result.violations) for result in values.counted),
        improved_rate=_estimate_rate(values.improved),
        success_rate=_estimate_rate(values.success),
        valid_rate=_estimate_rate(values.valid),
        improvement=_estimate_mean(values.improvements),
        best=max(values.improvements, default=None),
        best_of={
            k: statistics.expected_best_of_k(values.improvements, k)
            for k in _ks_up_to(len(values.improvements))
        },
        pass_at_k={
            k: statistics.pass_at_k(int(sum(values.success)), len(values.judged), k)
            for k in _ks_up_to(len(values.judged))
        },
        score=_estimate_mean(values.scores),
        per_run=_divide_spend(total, len(values.counted)),
        per_success=_divide_spend(total, int(sum(values.success))),
        validation_gap=_estimate_mean(values.validation_gaps),
    )


def _estimate_rate(hits: Sequence[float]) -> Estimate:
    return _to_estimate(
        statistics.mean(hits), statistics.wilson_interval(int(sum(hits)), len(hits)), len(hits)
    )


def _estimate_mean(values: Sequence[float]) -> Estimate:
    return _to_estimate(statistics.mean(values), statistics.bootstrap_interval(values), len(values))


def _to_estimate(value: float | None, interval: Interval, n: int) -> Estimate:
    return Estimate(value=value, low=interval.low, high=interval.high, n=n)


def _ks_up_to(most: int) -> list[int]:
    return sorted({k for k in REPORTED_KS if k <= most} | ({most} if 0 < most <= REPORTED_KS[-1] else set()))


def _divide_spend(total: Spend, of: float) -> Spend | None:
    if not of:
        return None
    return Spend(seconds=total.seconds / of, tokens=total.tokens / of, dollars=total.dollars / of)


def _build_overall_cell(who: str, cells: Sequence[Cell], numbers: Sequence[RunValues]) -> Cell:
    """The mean over tasks, each of one weight."""
    success = _estimate_rate_over_tasks([of.success for of in numbers])
    per_run = _mean_spend([cell.per_run for cell in cells if cell.per_run])
    return Cell(
        task="",
        agent=who,
        tasks=len(cells),
        runs=_sum_counts(cells, lambda cell: cell.runs),
        counted=_sum_counts(cells, lambda cell: cell.counted),
        judged=_sum_counts(cells, lambda cell: cell.judged),
        valid=_sum_counts(cells, lambda cell: cell.valid),
        improved=_sum_counts(cells, lambda cell: cell.improved),
        success=_sum_counts(cells, lambda cell: cell.success),
        faults=_sum_counts(cells, lambda cell: cell.faults),
        unfinished=_sum_counts(cells, lambda cell: cell.unfinished),
        unsandboxed=_sum_counts(cells, lambda cell: cell.unsandboxed),
        violations=_sum_counts(cells, lambda cell: cell.violations),
        improved_rate=_estimate_rate_over_tasks([of.improved for of in numbers]),
        success_rate=success,
        valid_rate=_estimate_rate_over_tasks([of.valid for of in numbers]),
        improvement=_estimate_over_tasks([of.improvements_or_zero for of in numbers]),
        best=statistics.mean([cell.best for cell in cells if cell.best is not None]),
        best_of=_mean_per_k([cell.best_of for cell in cells]),
        pass_at_k=_mean_per_k([cell.pass_at_k for cell in cells]),
        score=Estimate(),
        per_run=per_run,
        per_success=_divide_spend(per_run, success.value) if per_run and success.value else None,
        validation_gap=_estimate_over_tasks([of.validation_gaps for of in numbers]),
    )


def _sum_counts(cells: Sequence[Cell], count: Callable[[Cell], int]) -> int:
    return sum(map(count, cells))


def _estimate_over_tasks(
    groups: Sequence[Sequence[float]],
    interval: Callable[[Sequence[Sequence[float]]], Interval] = statistics.stratified_interval,
) -> Estimate:
    known = [values for values in groups if values]
    means = [found for found in map(statistics.mean, known) if found is not None]
    return _to_estimate(statistics.mean(means), interval(known), len(known))


def _estimate_rate_over_tasks(groups: Sequence[Sequence[float]]) -> Estimate:
    return _estimate_over_tasks(groups, statistics.stratified_rate_interval)


def _mean_per_k(tables: Sequence[dict[int, float]]) -> dict[int, float]:
    """Means over tasks, for each k that all tasks with any figure have."""
    known = [table for table in tables if table]
    shared = sorted(set.intersection(*map(set, known))) if known else []
    return {k: sum(table[k] for table in known) / len(known) for k in shared}


def _mean_spend(each: Sequence[Spend]) -> Spend | None:
    total = Spend(
        seconds=sum(spend.seconds for spend in each),
        tokens=sum(spend.tokens for spend in each),
        dollars=sum(spend.dollars for spend in each),
    )
    return _divide_spend(total, len(each))


def _caveat_warnings(overall: Sequence[Cell], tasks: int) -> Iterator[str]:
    """What no rate shows."""
    for cell in overall:
        if cell.tasks < tasks:
            yield f"{cell.agent} has runs on {cell.tasks} of {tasks} tasks: its mean over tasks is over those only"
        yield from (f"{cell.agent}: {words}" for words in describe_caveats(cell))


def describe_caveats(cell: Cell) -> list[str]:
    """What is counted apart, in words."""
    counts = (
        (cell.faults, "ended as a fault, or were never graded, and count for nothing"),
        (cell.unfinished, "are unfinished and count for nothing"),
        (cell.unsandboxed, "were not sandboxed"),
        (cell.violations, "broke a rule of their task"),
    )
    return [f"{count} of {cell.runs} runs {what}" for count, what in counts if count]
