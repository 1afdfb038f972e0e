"""What many runs come to: one cell for each task and entrant, and each entrant over all tasks. Faults count apart."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from mlagentbench.records import Record
from mlagentbench.reports import statistics
from mlagentbench.reports.runs import Run
from mlagentbench.reports.settings import Setting, labels, settings, warnings
from mlagentbench.reports.statistics import Interval
from mlagentbench.reports.validation import gap

KS = (1, 2, 3, 4, 5, 8, 10, 16, 32, 64, 100)


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
    who: str
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
    entrants: tuple[str, ...]
    overall: tuple[Cell, ...]
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]

    def cell(self, task: str, who: str) -> Cell | None:
        """One of them, if it has any runs."""
        return next((cell for cell in self.cells if (cell.task, cell.who) == (task, who)), None)


class Numbers:
    """The runs of a cell as numbers."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.counted = [run.result for run in runs if run.result and not run.fault]
        self.judged = [run.result for run in runs if run.result and not run.fault and run.spec.baseline]
        self.improved = [float(bool(result.improved)) for result in self.judged]
        self.success = [float(result.success) for result in self.judged]
        self.valid = [float(result.valid) for result in self.counted]
        self.improvement = [result.improvement for result in self.judged if result.improvement is not None]
        self.scores = [result.score for result in self.counted if result.score is not None]

    @cached_property
    def gaps(self) -> list[float]:
        """How much too hopeful each was; whole traces are read for it."""
        return [found for found in map(gap, self.runs) if found is not None]

    @property
    def gained(self) -> list[float]:
        """Improvements for a mean over tasks, where a task without a valid submission has improved by nothing."""
        return self.improvement or ([] if any(self.valid) or not self.judged else [0.0])

    @property
    def total(self) -> Spend:
        """What all counted runs took."""
        return Spend(
            seconds=sum(result.seconds for result in self.counted),
            tokens=sum(result.tokens for result in self.counted),
            dollars=sum(result.dollars for result in self.counted),
        )


def summarise(runs: Sequence[Run]) -> Summary:
    """Every figure of every task and entrant, and over all tasks; runs in different settings are never mixed."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for task, run in zip(labels(runs), runs, strict=True):
        groups[task, run.who].append(run)
    tasks = sorted({task for task, _ in groups}, key=str.lower)
    entrants = sorted({who for _, who in groups}, key=str.lower)
    numbers = {
        place: Numbers(groups[place]) for place in sorted(groups, key=lambda place: (place[0].lower(), place[1]))
    }
    cells = {place: cell_of(*place, found) for place, found in numbers.items()}
    overall = []
    for who in entrants:
        own = [place for place in cells if place[1] == who]
        overall.append(_overall(who, [cells[place] for place in own], [numbers[place] for place in own]))
    found = settings(runs)
    return Summary(
        cells=tuple(cells.values()),
        tasks=tuple(tasks),
        entrants=tuple(entrants),
        overall=tuple(overall),
        settings=found,
        warnings=(*warnings(found), *_counted_apart(overall, len(tasks))),
    )


def cell_of(task: str, who: str, of: Numbers) -> Cell:
    """The figures of one cell."""
    total = of.total
    return Cell(
        task=task,
        who=who,
        runs=len(of.runs),
        counted=len(of.counted),
        judged=len(of.judged),
        valid=int(sum(of.valid)),
        improved=int(sum(of.improved)),
        success=int(sum(of.success)),
        faults=sum(run.fault for run in of.runs),
        unfinished=sum(run.result is None for run in of.runs),
        unsandboxed=sum(run.spec.sandbox == "none" for run in of.runs),
        violations=sum(bool(result.violations) for result in of.counted),
        improved_rate=_rate(of.improved),
        success_rate=_rate(of.success),
        valid_rate=_rate(of.valid),
        improvement=_mean(of.improvement),
        best=max(of.improvement, default=None),
        best_of={k: statistics.best_of_k(of.improvement, k) for k in _ks(len(of.improvement))},
        pass_at_k={k: statistics.pass_at_k(int(sum(of.success)), len(of.judged), k) for k in _ks(len(of.judged))},
        score=_mean(of.scores),
        per_run=_share(total, len(of.counted)),
        per_success=_share(total, int(sum(of.success))),
        validation_gap=_mean(of.gaps),
    )


def _rate(hits: Sequence[float]) -> Estimate:
    return _estimate(statistics.mean(hits), statistics.wilson(int(sum(hits)), len(hits)), len(hits))


def _mean(values: Sequence[float]) -> Estimate:
    return _estimate(statistics.mean(values), statistics.bootstrap(values), len(values))


def _estimate(value: float | None, interval: Interval, n: int) -> Estimate:
    return Estimate(value=value, low=interval.low, high=interval.high, n=n)


def _ks(most: int) -> list[int]:
    return sorted({k for k in KS if k <= most} | ({most} if 0 < most <= KS[-1] else set()))


def _share(total: Spend, of: float) -> Spend | None:
    if not of:
        return None
    return Spend(seconds=total.seconds / of, tokens=total.tokens / of, dollars=total.dollars / of)


def _overall(who: str, cells: Sequence[Cell], numbers: Sequence[Numbers]) -> Cell:
    """The mean over tasks, each of one weight."""
    success = _rate_over_tasks([of.success for of in numbers])
    per_run = _spend([cell.per_run for cell in cells if cell.per_run])
    return Cell(
        task="",
        who=who,
        tasks=len(cells),
        runs=_sum(cells, lambda cell: cell.runs),
        counted=_sum(cells, lambda cell: cell.counted),
        judged=_sum(cells, lambda cell: cell.judged),
        valid=_sum(cells, lambda cell: cell.valid),
        improved=_sum(cells, lambda cell: cell.improved),
        success=_sum(cells, lambda cell: cell.success),
        faults=_sum(cells, lambda cell: cell.faults),
        unfinished=_sum(cells, lambda cell: cell.unfinished),
        unsandboxed=_sum(cells, lambda cell: cell.unsandboxed),
        violations=_sum(cells, lambda cell: cell.violations),
        improved_rate=_rate_over_tasks([of.improved for of in numbers]),
        success_rate=success,
        valid_rate=_rate_over_tasks([of.valid for of in numbers]),
        improvement=_over_tasks([of.gained for of in numbers]),
        best=statistics.mean([cell.best for cell in cells if cell.best is not None]),
        best_of=_common([cell.best_of for cell in cells]),
        pass_at_k=_common([cell.pass_at_k for cell in cells]),
        score=Estimate(),
        per_run=per_run,
        per_success=_share(per_run, success.value) if per_run and success.value else None,
        validation_gap=_over_tasks([of.gaps for of in numbers]),
    )


def _sum(cells: Sequence[Cell], count: Callable[[Cell], int]) -> int:
    return sum(map(count, cells))


def _over_tasks(
    groups: Sequence[Sequence[float]], interval: Callable[[Sequence[Sequence[float]]], Interval] = statistics.stratified
) -> Estimate:
    known = [values for values in groups if values]
    means = [found for found in map(statistics.mean, known) if found is not None]
    return _estimate(statistics.mean(means), interval(known), len(known))


def _rate_over_tasks(groups: Sequence[Sequence[float]]) -> Estimate:
    return _over_tasks(groups, statistics.stratified_rate)


def _common(tables: Sequence[dict[int, float]]) -> dict[int, float]:
    """Means over tasks, for each k that all tasks with any figure have."""
    known = [table for table in tables if table]
    shared = sorted(set.intersection(*map(set, known))) if known else []
    return {k: sum(table[k] for table in known) / len(known) for k in shared}


def _spend(each: Sequence[Spend]) -> Spend | None:
    total = Spend(
        seconds=sum(spend.seconds for spend in each),
        tokens=sum(spend.tokens for spend in each),
        dollars=sum(spend.dollars for spend in each),
    )
    return _share(total, len(each))


def _counted_apart(overall: Sequence[Cell], tasks: int) -> Iterator[str]:
    """What no rate shows."""
    for cell in overall:
        if cell.tasks < tasks:
            yield f"{cell.who} has runs on {cell.tasks} of {tasks} tasks: its mean over tasks is over those only"
        yield from (f"{cell.who}: {words}" for words in apart(cell))


def apart(cell: Cell) -> list[str]:
    """What is counted apart, in words."""
    counts = (
        (cell.faults, "ended as a fault, or were never graded, and count for nothing"),
        (cell.unfinished, "are unfinished and count for nothing"),
        (cell.unsandboxed, "were not sandboxed"),
        (cell.violations, "broke a rule of their task"),
    )
    return [f"{count} of {cell.runs} runs {what}" for count, what in counts if count]
