"""How success and improvement grow with steps and with time, over all runs whose steps are graded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import label_runs
from mlagentbench.pages.figures.lines import Curve
from mlagentbench.pages.site.run_digest import GradedStep, RunDigest
from mlagentbench.pages.site.tables import DataTable

TIME_CURVE_POINTS = 60  # points of a curve over time
TaskAndAgent = tuple[str, str]  # task and contestant
GradedSteps = tuple[GradedStep, ...]


@dataclass(frozen=True)
class AnytimeCurves:
    """Curves by contestant, and improvement by task and contestant; `graded` counts the runs behind them."""

    graded_runs: int
    by_step: Mapping[str, Curve]
    by_time: Mapping[str, Curve]
    by_task: Mapping[str, Mapping[str, Curve]]

    def to_table(self) -> DataTable:
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
        return DataTable("anytime", "Improvement by task, and success over all tasks, after each step", rows)


def build_anytime_curves(
    runs: Sequence[Run], seen: Sequence[RunDigest], tasks: Sequence[str], entrants: Sequence[str]
) -> AnytimeCurves:
    """Put the graded runs together; a state without a valid submission is no success, and has improved by nothing."""
    groups: dict[TaskAndAgent, list[GradedSteps]] = {}
    for task, run, found in zip(label_runs(runs), runs, seen, strict=True):
        if run.result and not run.is_fault and found.graded_steps:
            groups.setdefault((task, run.agent_label), []).append(found.graded_steps)
    if not groups:
        return AnytimeCurves(0, {}, {}, {})
    every = [moment for group in groups.values() for moments in group for moment in moments]
    steps = np.arange(max(moment.step for moment in every) + 1)
    longest = max(max(moment.seconds for moment in every), 1e-3)
    shortest = min((moment.seconds for moment in every if moment.seconds > 0), default=longest)
    times = np.geomspace(shortest, longest, TIME_CURVE_POINTS) if shortest < longest else np.array([longest])
    return AnytimeCurves(
        sum(map(len, groups.values())),
        {
            who: _mean_success_line(groups, who, steps, _step_number)
            for who in entrants
            if any(who == w for _, w in groups)
        },
        {
            who: _mean_success_line(groups, who, times, _elapsed_seconds)
            for who in entrants
            if any(who == w for _, w in groups)
        },
        {
            task: dict(_improvement_lines(groups, task, entrants, steps))
            for task in tasks
            if any(task == t for t, _ in groups)
        },
    )


def _step_number(moment: GradedStep) -> float:
    return moment.step


def _elapsed_seconds(moment: GradedStep) -> float:
    return moment.seconds


def _success_value(moment: GradedStep) -> float:
    return float(moment.success)


def _improvement_value(moment: GradedStep) -> float:
    return moment.improvement or 0.0


def _mean_success_line(
    groups: Mapping[TaskAndAgent, list[GradedSteps]],
    who: str,
    at: np.ndarray,
    clock: Callable[[GradedStep], float],
) -> Curve:
    own = [
        _mean_over_runs(group, at, clock, _success_value)
        for (_, name), group in groups.items()
        if name == who
    ]
    return Curve(at.tolist(), np.mean(own, axis=0).tolist())


def _improvement_lines(
    groups: Mapping[TaskAndAgent, list[GradedSteps]], task: str, entrants: Sequence[str], at: np.ndarray
) -> Iterator[tuple[str, Curve]]:
    for who in entrants:
        if group := groups.get((task, who)):
            last = max(moments[-1].step for moments in group)
            own = at[: last + 1]
            yield (
                who,
                Curve(own.tolist(), _mean_over_runs(group, own, _step_number, _improvement_value).tolist()),
            )


def _mean_over_runs(
    group: Sequence[GradedSteps],
    at: np.ndarray,
    clock: Callable[[GradedStep], float],
    value: Callable[[GradedStep], float],
) -> np.ndarray:
    """The mean over runs of the last value at each point; a run that has ended stays where it is."""
    rows = []
    for moments in group:
        places = np.searchsorted([clock(moment) for moment in moments], at, side="right")
        rows.append(np.array([0.0, *map(value, moments)])[places])
    return np.asarray(np.mean(rows, axis=0))
