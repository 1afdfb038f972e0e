"""Cost per run and per success: time, tokens and money."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from mlagentbench.analysis import statistics
from mlagentbench.analysis.metrics import Cell, Summary
from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import label_runs
from mlagentbench.pages.figures.efficiency import EfficiencyPoint
from mlagentbench.pages.site.ranking import Yardstick
from mlagentbench.pages.site.tables import DataTable
from mlagentbench.records import Result

CostKind = Literal["seconds", "tokens", "dollars"]
COST_KINDS: tuple[CostKind, ...] = get_args(CostKind)
COST_AXIS_LABELS = {"seconds": "seconds per run", "tokens": "tokens per run", "dollars": "dollars per run"}


def efficiency_points(
    runs: Sequence[Run], summary: Summary, agents: Sequence[str], kind: CostKind, yardstick: Yardstick
) -> list[EfficiencyPoint]:
    """One point per agent: means over tasks with bootstrap intervals; empty if all costs are zero."""
    costs: dict[str, dict[str, list[float]]] = {}
    for task, run in zip(label_runs(runs), runs, strict=True):
        if run.result and not run.is_fault:
            costs.setdefault(run.agent_label, {}).setdefault(task, []).append(_cost(run.result, kind))
    overall = {cell.agent: cell for cell in summary.overall}
    candidates = [
        _efficiency_point(overall[agent], list(costs[agent].values()), yardstick)
        for agent in agents
        if agent in costs
    ]
    points = [point for point in candidates if point]
    return points if any(point.cost for point in points) else []


def _cost(result: Result, kind: CostKind) -> float:
    return {"seconds": result.seconds, "tokens": float(result.tokens), "dollars": result.dollars}[kind]


def _efficiency_point(
    cell: Cell, costs_by_task: Sequence[Sequence[float]], yardstick: Yardstick
) -> EfficiencyPoint | None:
    estimate = cell.progress if yardstick == "progress" else cell.success_rate
    if estimate.value is None:
        return None
    cost = sum(sum(costs) / len(costs) for costs in costs_by_task) / len(costs_by_task)
    cost_low, cost_high = (
        cost if bound is None else bound for bound in statistics.stratified_interval(costs_by_task)
    )
    low, high = (estimate.value if bound is None else bound for bound in (estimate.low, estimate.high))
    return EfficiencyPoint(cell.agent, estimate.value, (low, high), cost, (cost_low, cost_high))


def efficiency_table(summary: Summary, agents: Sequence[str]) -> DataTable:
    """Success rates and costs of every agent."""
    overall = {cell.agent: cell for cell in summary.overall}
    rows = [_efficiency_row(overall[agent]) for agent in agents]
    return DataTable("efficiency", "Cost per run and per success, means over tasks", rows)


def _efficiency_row(cell: Cell) -> dict[str, Any]:
    row: dict[str, Any] = {
        "agent": cell.agent,
        "tasks": cell.tasks,
        "runs": cell.counted,
        "progress": cell.progress.value,
        "success": cell.improved_rate.value,
        "success beyond noise": cell.success_rate.value,
    }
    for name, spend in (("run", cell.per_run), ("success", cell.per_success)):
        row |= {f"{kind} per {name}": getattr(spend, kind) if spend else None for kind in COST_KINDS}
    return row
