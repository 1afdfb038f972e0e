"""Progress, success and improvement over steps and over time, of all runs with graded steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import label_runs
from mlagentbench.pages.figures.lines import Curve
from mlagentbench.pages.site.ranking import Yardstick
from mlagentbench.pages.site.run_digest import GradedStep, RunDigest
from mlagentbench.pages.site.tables import DataTable

TIME_CURVE_POINTS = 60
TaskAndAgent = tuple[str, str]
GradedSteps = tuple[GradedStep, ...]  # of one run


@dataclass(frozen=True)
class AnytimeCurves:
    """Progress or success by agent, and progress or improvement by task and agent."""

    graded_runs: int
    overall: str  # "progress" or "success"
    per_task: Yardstick
    by_step: Mapping[str, Curve]
    by_time: Mapping[str, Curve]
    by_task: Mapping[str, Mapping[str, Curve]]

    def to_table(self) -> DataTable:
        """The points of the curves over steps."""
        rows = [
            {"task": task, "agent": agent, "step": step, self.per_task: value}
            for task, curves in self.by_task.items()
            for agent, curve in curves.items()
            for step, value in zip(curve.x, curve.y, strict=True)
        ]
        rows += [
            {"task": "", "agent": agent, "step": step, self.overall: value}
            for agent, curve in self.by_step.items()
            for step, value in zip(curve.x, curve.y, strict=True)
        ]
        title = f"{self.per_task.capitalize()} per task, and {self.overall} over all tasks, after each step"
        return DataTable("anytime", title, rows)


def build_anytime_curves(
    runs: Sequence[Run],
    digests: Sequence[RunDigest],
    tasks: Sequence[str],
    agents: Sequence[str],
    yardstick: Yardstick,
) -> AnytimeCurves:
    """Average the graded runs; a state without a valid submission counts as zero."""
    overall = "progress" if yardstick == "progress" else "success"
    groups: dict[TaskAndAgent, list[GradedSteps]] = {}
    for task, run, digest in zip(label_runs(runs), runs, digests, strict=True):
        if run.result and not run.is_fault and digest.graded_steps:
            groups.setdefault((task, run.agent_label), []).append(digest.graded_steps)
    if not groups:
        return AnytimeCurves(0, overall, yardstick, {}, {}, {})
    all_steps = [graded for group in groups.values() for graded_steps in group for graded in graded_steps]
    steps = np.arange(max(graded.step for graded in all_steps) + 1)
    longest = max(max(graded.seconds for graded in all_steps), 1e-3)
    shortest = min((graded.seconds for graded in all_steps if graded.seconds > 0), default=longest)
    times = np.geomspace(shortest, longest, TIME_CURVE_POINTS) if shortest < longest else np.array([longest])
    graded_tasks, graded_agents = {task for task, _ in groups}, {agent for _, agent in groups}
    agents = [agent for agent in agents if agent in graded_agents]
    return AnytimeCurves(
        sum(map(len, groups.values())),
        overall,
        yardstick,
        {agent: _mean_curve(groups, agent, steps, _step_number, VALUES[overall]) for agent in agents},
        {agent: _mean_curve(groups, agent, times, _elapsed_seconds, VALUES[overall]) for agent in agents},
        {
            task: _task_curves(groups, task, agents, steps, VALUES[yardstick])
            for task in tasks
            if task in graded_tasks
        },
    )


def _step_number(graded: GradedStep) -> float:
    return graded.step


def _elapsed_seconds(graded: GradedStep) -> float:
    return graded.seconds


VALUES: Mapping[str, Callable[[GradedStep], float]] = {
    "success": lambda graded: float(graded.success),
    "improvement": lambda graded: graded.improvement or 0.0,
    "progress": lambda graded: graded.progress or 0.0,
}


def _mean_curve(
    groups: Mapping[TaskAndAgent, list[GradedSteps]],
    agent: str,
    positions: np.ndarray,
    position_of: Callable[[GradedStep], float],
    value_of: Callable[[GradedStep], float],
) -> Curve:
    task_means = [
        _mean_over_runs(group, positions, position_of, value_of)
        for (_, group_agent), group in groups.items()
        if group_agent == agent
    ]
    return Curve(positions.tolist(), np.mean(task_means, axis=0).tolist())


def _task_curves(
    groups: Mapping[TaskAndAgent, list[GradedSteps]],
    task: str,
    agents: Sequence[str],
    steps: np.ndarray,
    value_of: Callable[[GradedStep], float],
) -> dict[str, Curve]:
    curves = {}
    for agent in agents:
        if group := groups.get((task, agent)):
            last_step = max(graded_steps[-1].step for graded_steps in group)
            own_steps = steps[: last_step + 1]
            means = _mean_over_runs(group, own_steps, _step_number, value_of)
            curves[agent] = Curve(own_steps.tolist(), means.tolist())
    return curves


def _mean_over_runs(
    group: Sequence[GradedSteps],
    positions: np.ndarray,
    position_of: Callable[[GradedStep], float],
    value_of: Callable[[GradedStep], float],
) -> np.ndarray:
    """Average the latest value of each run at every position; a finished run keeps its last value."""
    rows = []
    for graded_steps in group:
        counts = np.searchsorted(list(map(position_of, graded_steps)), positions, side="right")
        rows.append(np.array([0.0, *map(value_of, graded_steps)])[counts])
    return np.asarray(np.mean(rows, axis=0))
