"""Metrics of many runs: one cell per task and agent, one per agent over all tasks. Faults are excluded."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from statistics import median

from mlagentbench.analysis import statistics
from mlagentbench.analysis.progress import Pace, knows_progress, measure_pace
from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import Setting, collect_settings, collect_warnings, label_runs
from mlagentbench.analysis.statistics import Interval
from mlagentbench.analysis.validation import compute_validation_gap
from mlagentbench.records import Record

PAPER_CATEGORIES = (
    "canonical",
    "classic Kaggle",
    "Kaggle challenge",
    "recent research",
    "code improvement",
)
REPORTED_KS = (1, 2, 3, 4, 5, 8, 10, 16, 32, 64, 100)


class Estimate(Record):
    """A value with its 95 % interval and the number of runs (overall: tasks) behind it; None without runs."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0


class Spend(Record):
    """Resources used."""

    seconds: float
    tokens: float
    dollars: float


class LevelReached(Record):
    """How many runs with graded steps reached a level, and the median step at which those did."""

    reached: int
    runs: int
    median_step: float | None


class Cell(Record):
    """The runs of one agent on one task.

    In an overall cell `task` is empty, counts are sums, and all other values are means over tasks.
    """

    task: str
    agent: str
    tasks: int = 1
    runs: int  # all, including faults and unfinished runs
    counted: int  # neither faults nor unfinished
    judged: int  # counted and a baseline is known: the denominator of the rates
    valid: int
    improved: int
    success: int
    faults: int
    unfinished: int
    unsandboxed: int
    violations: int  # runs with a rule violation
    improved_rate: Estimate  # success by the paper's rule
    success_rate: Estimate  # success by the paper's rule and the noise test
    valid_rate: Estimate
    progress: Estimate  # 0 at the starter, 1 at the expert; an invalid submission counts as 0
    progress_over_steps: Estimate  # mean over the logarithm of the steps, of runs with graded steps
    progress_over_time: Estimate  # the same over the logarithm of the time
    levels_reached: dict[str, LevelReached]
    improvement: Estimate  # mean among valid submissions
    best: float | None  # best improvement
    best_of: dict[int, float]  # expected best improvement of k valid submissions
    pass_at_k: dict[int, float]  # probability that at least one of k runs succeeds
    score: Estimate  # mean among valid submissions; None overall, because units differ
    per_run: Spend | None
    per_success: Spend | None
    validation_gap: Estimate  # how much the last validation score overstated the score


class Summary(Record):
    """All cells, the means over all tasks and over each category, the settings of the runs, and warnings."""

    cells: tuple[Cell, ...]
    tasks: tuple[str, ...]
    agents: tuple[str, ...]
    overall: tuple[Cell, ...]
    by_category: dict[str, tuple[Cell, ...]]  # category -> one cell per agent, the mean over its tasks
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]

    def cell(self, task: str, agent: str) -> Cell | None:
        """The cell of a task and an agent, or None if there are no such runs."""
        return next((cell for cell in self.cells if (cell.task, cell.agent) == (task, agent)), None)


class RunValues:
    """The values of the runs of one cell."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.counted = [run.result for run in runs if run.result and not run.is_fault]
        self.judged = [run.result for run in runs if run.result and not run.is_fault and run.spec.baseline]
        self.improved = [float(bool(result.improved)) for result in self.judged]
        self.success = [float(bool(result.success)) for result in self.judged]
        self.valid = [float(result.valid) for result in self.counted]
        self.improvements = [result.improvement for result in self.judged if result.improvement is not None]
        self.scores = [result.score for result in self.counted if result.score is not None]
        self.progress = [
            run.result.progress or 0.0
            for run in runs
            if run.result and not run.is_fault and run.spec.baseline and knows_progress(run.spec)
        ]

    @cached_property
    def paces(self) -> list[Pace]:
        """The pace of each run with graded steps. Reads whole traces of these."""
        return [pace for run in self.runs if run.result and not run.is_fault and (pace := measure_pace(run))]

    @cached_property
    def validation_gaps(self) -> list[float]:
        """The validation gap of each run that has one. Reads whole traces."""
        return [gap for gap in map(compute_validation_gap, self.runs) if gap is not None]

    @property
    def improvements_or_zero(self) -> list[float]:
        """Improvements for a mean over tasks: a task without a valid submission counts as 0."""
        return self.improvements or ([] if any(self.valid) or not self.judged else [0.0])

    @property
    def total_spend(self) -> Spend:
        """The resources that all counted runs used together."""
        return Spend(
            seconds=sum(result.seconds for result in self.counted),
            tokens=sum(result.tokens for result in self.counted),
            dollars=sum(result.dollars for result in self.counted),
        )


def summarize_runs(runs: Sequence[Run]) -> Summary:
    """Compute all metrics per task and agent, and over all tasks.

    Runs in different settings are never mixed: each setting of a task counts as a task of its own.
    """
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for task, run in zip(label_runs(runs), runs, strict=True):
        groups[task, run.agent_label].append(run)
    tasks = sorted({task for task, _ in groups}, key=str.lower)
    agents = sorted({agent for _, agent in groups}, key=str.lower)
    values = {key: RunValues(groups[key]) for key in sorted(groups, key=lambda key: (key[0].lower(), key[1]))}
    cells = {key: build_cell(*key, run_values) for key, run_values in values.items()}
    settings = collect_settings(runs)
    categories = {setting.label: setting.category for setting in settings}

    def mean_cells(labels: Sequence[str]) -> tuple[Cell, ...]:
        keys = {agent: [key for key in cells if key[1] == agent and key[0] in labels] for agent in agents}
        return tuple(
            _build_overall_cell(agent, [cells[key] for key in own], [values[key] for key in own])
            for agent, own in keys.items()
            if own
        )

    overall = mean_cells(tasks)
    by_category = {
        category: mean_cells([label for label in tasks if categories[label] == category])
        for category in sorted(set(categories.values()), key=_category_order)
    }
    return Summary(
        cells=tuple(cells.values()),
        tasks=tuple(tasks),
        agents=tuple(agents),
        overall=overall,
        by_category=by_category,
        settings=settings,
        warnings=(*collect_warnings(settings), *_caveat_warnings(overall, len(tasks))),
    )


def _category_order(category: str) -> tuple[int, str]:
    """The paper's categories in its order, then the others."""
    position = PAPER_CATEGORIES.index(category) if category in PAPER_CATEGORIES else len(PAPER_CATEGORIES)
    return position, category


def build_cell(task: str, agent: str, values: RunValues) -> Cell:
    """The metrics of one agent on one task."""
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
        progress=_estimate_mean(values.progress),
        progress_over_steps=_estimate_mean([pace.over_steps for pace in values.paces]),
        progress_over_time=_estimate_mean([pace.over_time for pace in values.paces]),
        levels_reached=_count_levels_reached(values.paces),
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


def _estimate_rate(outcomes: Sequence[float]) -> Estimate:
    interval = statistics.wilson_interval(int(sum(outcomes)), len(outcomes))
    return _to_estimate(statistics.mean(outcomes), interval, len(outcomes))


def _estimate_mean(values: Sequence[float]) -> Estimate:
    return _to_estimate(statistics.mean(values), statistics.bootstrap_interval(values), len(values))


def _to_estimate(value: float | None, interval: Interval, n: int) -> Estimate:
    return Estimate(value=value, low=interval.low, high=interval.high, n=n)


def _ks_up_to(limit: int) -> list[int]:
    ks = {k for k in REPORTED_KS if k <= limit}
    return sorted(ks | ({limit} if 0 < limit <= REPORTED_KS[-1] else set()))


def _divide_spend(total: Spend, divisor: float) -> Spend | None:
    if not divisor:
        return None
    return Spend(
        seconds=total.seconds / divisor, tokens=total.tokens / divisor, dollars=total.dollars / divisor
    )


def _build_overall_cell(agent: str, cells: Sequence[Cell], values: Sequence[RunValues]) -> Cell:
    """The mean over tasks, each with the same weight."""
    success = _estimate_rate_over_tasks([task.success for task in values])
    per_run = _mean_spend([cell.per_run for cell in cells if cell.per_run])
    return Cell(
        task="",
        agent=agent,
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
        improved_rate=_estimate_rate_over_tasks([task.improved for task in values]),
        success_rate=success,
        valid_rate=_estimate_rate_over_tasks([task.valid for task in values]),
        progress=_estimate_over_tasks([task.progress for task in values]),
        progress_over_steps=_estimate_over_tasks([[p.over_steps for p in task.paces] for task in values]),
        progress_over_time=_estimate_over_tasks([[p.over_time for p in task.paces] for task in values]),
        levels_reached=_count_levels_reached(list(chain.from_iterable(task.paces for task in values))),
        improvement=_estimate_over_tasks([task.improvements_or_zero for task in values]),
        best=statistics.mean([cell.best for cell in cells if cell.best is not None]),
        best_of=_mean_per_k([cell.best_of for cell in cells]),
        pass_at_k=_mean_per_k([cell.pass_at_k for cell in cells]),
        score=Estimate(),
        per_run=per_run,
        per_success=_divide_spend(per_run, success.value) if per_run and success.value else None,
        validation_gap=_estimate_over_tasks([task.validation_gaps for task in values]),
    )


def _count_levels_reached(paces: Sequence[Pace]) -> dict[str, LevelReached]:
    steps: dict[str, list[int | None]] = defaultdict(list)
    for pace in paces:
        for level, step in pace.steps_to_level.items():
            steps[level].append(step)
    levels = {}
    for level, all_steps in steps.items():
        reached = [step for step in all_steps if step is not None]
        middle = float(median(reached)) if reached else None
        levels[level] = LevelReached(reached=len(reached), runs=len(all_steps), median_step=middle)
    return levels


def _sum_counts(cells: Sequence[Cell], count: Callable[[Cell], int]) -> int:
    return sum(map(count, cells))


def _estimate_over_tasks(
    groups: Sequence[Sequence[float]],
    interval: Callable[[Sequence[Sequence[float]]], Interval] = statistics.stratified_interval,
) -> Estimate:
    nonempty = [values for values in groups if values]
    means = [mean for mean in map(statistics.mean, nonempty) if mean is not None]
    return _to_estimate(statistics.mean(means), interval(nonempty), len(nonempty))


def _estimate_rate_over_tasks(groups: Sequence[Sequence[float]]) -> Estimate:
    return _estimate_over_tasks(groups, statistics.stratified_rate_interval)


def _mean_per_k(tables: Sequence[dict[int, float]]) -> dict[int, float]:
    """Means over tasks, for each k that is known for all tasks with any value."""
    nonempty = [table for table in tables if table]
    shared = sorted(set.intersection(*map(set, nonempty))) if nonempty else []
    return {k: sum(table[k] for table in nonempty) / len(nonempty) for k in shared}


def _mean_spend(spends: Sequence[Spend]) -> Spend | None:
    total = Spend(
        seconds=sum(spend.seconds for spend in spends),
        tokens=sum(spend.tokens for spend in spends),
        dollars=sum(spend.dollars for spend in spends),
    )
    return _divide_spend(total, len(spends))


def _caveat_warnings(overall: Sequence[Cell], task_count: int) -> Iterator[str]:
    """What the rates do not show."""
    for cell in overall:
        if cell.tasks < task_count:
            yield f"{cell.agent} has runs on {cell.tasks} of {task_count} tasks; its mean covers only those"
        yield from (f"{cell.agent}: {caveat}" for caveat in describe_caveats(cell))


def describe_caveats(cell: Cell) -> list[str]:
    """Runs that are excluded from the rates, or need a remark, as phrases."""
    counts = (
        (cell.faults, "ended in a fault or were never graded, and are excluded"),
        (cell.unfinished, "are unfinished and are excluded"),
        (cell.unsandboxed, "were not sandboxed"),
        (cell.violations, "violated a rule of their task"),
    )
    return [f"{count} of {cell.runs} runs {caveat}" for count, caveat in counts if count]
