"""Success and improvement as a function of steps and of time, over all runs with graded steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import label_runs
from mlagentbench.pages.figures.lines import Curve
from mlagentbench.pages.site.run_digest import GradedStep, RunDigest
from mlagentbench.pages.site.tables import DataTable

TIME_CURVE_POINTS = 60
TaskAndAgent = tuple[str, str]
GradedSteps = tuple[GradedStep, ...]  # of one run


@dataclass(frozen=True)
class AnytimeCurves:
    """Success by agent, and improvement by task and agent, over `graded_runs` runs."""

    graded_runs: int
    by_step: Mapping[str, Curve]
    by_time: Mapping[str, Curve]
    by_task: Mapping[str, Mapping[str, Curve]]

    def to_table(self) -> DataTable:
        """The points of the curves over steps."""
        rows = [
            {"task": task, "agent": agent, "step": step, "improvement": value}
            for task, curves in self.by_task.items()
            for agent, curve in curves.items()
            for step, value in zip(curve.x, curve.y, strict=True)
        ]
        rows += [
            {"task": "", "agent": agent, "step": step, "success": value}
            for agent, curve in self.by_step.items()
            for step, value in zip(curve.x, curve.y, strict=True)
        ]
        return DataTable("anytime", "Improvement per task, and success over all tasks, after each step", rows)


def build_anytime_curves(
    runs: Sequence[Run], digests: Sequence[RunDigest], tasks: Sequence[str], agents: Sequence[str]
) -> AnytimeCurves:
    """Average the graded runs; a state without a valid submission is no success and no improvement."""
    groups: dict[TaskAndAgent, list[GradedSteps]] = {}
    for task, run, digest in zip(label_runs(runs), runs, digests, strict=True):
        if run.result and not run.is_fault and digest.graded_steps:
            groups.setdefault((task, run.agent_label), []).append(digest.graded_steps)
    if not groups:
        return AnytimeCurves(0, {}, {}, {})
    all_steps = [graded for group in groups.values() for graded_steps in group for graded in graded_steps]
    steps = np.arange(max(graded.step for graded in all_steps) + 1)
    longest = max(max(graded.seconds for graded in all_steps), 1e-3)
    shortest = min((graded.seconds for graded in all_steps if graded.seconds > 0), default=longest)
    times = np.geomspace(shortest, longest, TIME_CURVE_POINTS) if shortest < longest else np.array([longest])
    graded_tasks, graded_agents = {task for task, _ in groups}, {agent for _, agent in groups}
    agents = [agent for agent in agents if agent in graded_agents]
    return AnytimeCurves(
        sum(map(len, groups.values())),
        {agent: _mean_success_curve(groups, agent, steps, _step_number) for agent in agents},
        {agent: _mean_success_curve(groups, agent, times, _elapsed_seconds) for agent in agents},
        {task: _improvement_curves(groups, task, agents, steps) for task in tasks if task in graded_tasks},
    )


def _step_number(graded: GradedStep) -> float:
    return graded.step


def _elapsed_seconds(graded: GradedStep) -> float:
    return graded.seconds


def _success_value(graded: GradedStep) -> float:
    return float(graded.success)


def _improvement_value(graded: GradedStep) -> float:
    return graded.improvement or 0.0


def _mean_success_curve(
    groups: Mapping[TaskAndAgent, list[GradedSteps]],
    agent: str,
    positions: np.ndarray,
    position_of: Callable[[GradedStep], float],
) -> Curve:
    task_means = [
        _mean_over_runs(group, positions, position_of, _success_value)
        for (_, group_agent), group in groups.items()
        if group_agent == agent
    ]
    return Curve(positions.tolist(), np.mean(task_means, axis=0).tolist())


def _improvement_curves(
    groups: Mapping[TaskAndAgent, list[GradedSteps]], task: str, agents: Sequence[str], steps: np.ndarray
) -> dict[str, Curve]:
    curves = {}
    for agent in agents:
        if group := groups.get((task, agent)):
            last_step = max(graded_steps[-1].step for graded_steps in group)
            own_steps = steps[: last_step + 1]
            means = _mean_over_runs(group, own_steps, _step_number, _improvement_value)
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
