"""How success and improvement grow with steps and with time, over all runs whose steps are graded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlagentbench.reports.figures.lines import Line
from mlagentbench.reports.runs import Run
from mlagentbench.reports.settings import labels
from mlagentbench.reports.site.seen import Moment, Seen
from mlagentbench.reports.site.tables import Table

TIMES = 60  # points of a curve over time
Place = tuple[str, str]  # task and contestant
Moments = tuple[Moment, ...]


@dataclass(frozen=True)
class Course:
    """Curves by contestant, and improvement by task and contestant; `graded` counts the runs behind them."""

    graded: int
    by_step: Mapping[str, Line]
    by_time: Mapping[str, Line]
    by_task: Mapping[str, Mapping[str, Line]]

    def table(self) -> Table:
        """For programs."""
        rows = [
            {"task": task, "who": who, "step": step, "improvement": value}
            for task, lines in self.by_task.items()
            for who, line in lines.items()
            for step, value in zip(line.x, line.y, strict=True)
        ]
        rows += [
            {"task": "", "who": who, "step": step, "success": value}
            for who, line in self.by_step.items()
            for step, value in zip(line.x, line.y, strict=True)
        ]
        return Table("anytime", "Improvement by task, and success over all tasks, after each step", rows)


def course(runs: Sequence[Run], seen: Sequence[Seen], tasks: Sequence[str], entrants: Sequence[str]) -> Course:
    """Put the graded runs together; a state without a valid submission is no success, and has improved by nothing."""
    groups: dict[Place, list[Moments]] = {}
    for task, run, found in zip(labels(runs), runs, seen, strict=True):
        if run.result and not run.fault and found.moments:
            groups.setdefault((task, run.who), []).append(found.moments)
    if not groups:
        return Course(0, {}, {}, {})
    every = [moment for group in groups.values() for moments in group for moment in moments]
    steps = np.arange(max(moment.step for moment in every) + 1)
    longest = max(max(moment.seconds for moment in every), 1e-3)
    shortest = min((moment.seconds for moment in every if moment.seconds > 0), default=longest)
    times = np.geomspace(shortest, longest, TIMES) if shortest < longest else np.array([longest])
    return Course(
        sum(map(len, groups.values())),
        {who: _overall(groups, who, steps, _step) for who in entrants if any(who == w for _, w in groups)},
        {who: _overall(groups, who, times, _second) for who in entrants if any(who == w for _, w in groups)},
        {task: dict(_lines(groups, task, entrants, steps)) for task in tasks if any(task == t for t, _ in groups)},
    )


def _step(moment: Moment) -> float:
    return moment.step


def _second(moment: Moment) -> float:
    return moment.seconds


def _success(moment: Moment) -> float:
    return float(moment.success)


def _improvement(moment: Moment) -> float:
    return moment.improvement or 0.0


def _overall(groups: Mapping[Place, list[Moments]], who: str, at: np.ndarray, clock: Callable[[Moment], float]) -> Line:
    own = [_mean(group, at, clock, _success) for (_, name), group in groups.items() if name == who]
    return Line(at.tolist(), np.mean(own, axis=0).tolist())


def _lines(
    groups: Mapping[Place, list[Moments]], task: str, entrants: Sequence[str], at: np.ndarray
) -> Iterator[tuple[str, Line]]:
    for who in entrants:
        if group := groups.get((task, who)):
            last = max(moments[-1].step for moments in group)
            own = at[: last + 1]
            yield who, Line(own.tolist(), _mean(group, own, _step, _improvement).tolist())


def _mean(
    group: Sequence[Moments], at: np.ndarray, clock: Callable[[Moment], float], value: Callable[[Moment], float]
) -> np.ndarray:
    """The mean over runs of the last value at each point; a run that has ended stays where it is."""
    rows = []
    for moments in group:
        places = np.searchsorted([clock(moment) for moment in moments], at, side="right")
        rows.append(np.array([0.0, *map(value, moments)])[places])
    return np.asarray(np.mean(rows, axis=0))
