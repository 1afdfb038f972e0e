"""What runs and successes cost: time, tokens, money."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from mlagentbench.analysis import statistics
from mlagentbench.analysis.metrics import Cell, Summary
from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import label_runs
from mlagentbench.pages.figures.efficiency import EfficiencyPoint
from mlagentbench.pages.site.tables import DataTable
from mlagentbench.records import Result

CostKind = Literal["seconds", "tokens", "dollars"]
COST_KINDS: tuple[CostKind, ...] = get_args(CostKind)
COST_AXIS_LABELS = {"seconds": "seconds a run", "tokens": "tokens a run", "dollars": "dollars a run"}


def efficiency_points(
    runs: Sequence[Run], summary: Summary, order: Sequence[str], kind: CostKind
) -> list[EfficiencyPoint]:
    """A mark for each contestant: means over tasks, with intervals from runs drawn again within tasks; none if free."""
    spent: dict[str, dict[str, list[float]]] = {}
    for task, run in zip(label_runs(runs), runs, strict=True):
        if run.result and not run.is_fault:
            spent.setdefault(run.agent_label, {}).setdefault(task, []).append(_cost(run.result, kind))
    overall = {cell.agent: cell for cell in summary.overall}
    found = [_efficiency_point(overall[who], list(spent[who].values())) for who in order if who in spent]
    known = [mark for mark in found if mark]
    return known if any(mark.cost for mark in known) else []


def _cost(result: Result, kind: CostKind) -> float:
    return {"seconds": result.seconds, "tokens": float(result.tokens), "dollars": result.dollars}[kind]


def _efficiency_point(cell: Cell, tasks: Sequence[Sequence[float]]) -> EfficiencyPoint | None:
    rate = cell.success_rate
    if rate.value is None:
        return None
    cost = sum(sum(values) / len(values) for values in tasks) / len(tasks)
    interval = statistics.stratified_interval(tasks)
    low, high = (cost if bound is None else bound for bound in interval)
    least, most = (rate.value if bound is None else bound for bound in (rate.low, rate.high))
    return EfficiencyPoint(cell.agent, rate.value, (least, most), cost, (low, high))


def efficiency_table(summary: Summary, order: Sequence[str]) -> DataTable:
    """For programs, and for the page."""
    overall = {cell.agent: cell for cell in summary.overall}
    return DataTable(
        "efficiency",
        "What a run and a success cost, means over tasks",
        [_efficiency_row(overall[who]) for who in order],
    )


def _efficiency_row(cell: Cell) -> dict[str, Any]:
    row: dict[str, Any] = {
        "who": cell.agent,
        "tasks": cell.tasks,
        "runs": cell.counted,
        "success": cell.improved_rate.value,
        "success beyond noise": cell.success_rate.value,
    }
    for name, spend in (("run", cell.per_run), ("success", cell.per_success)):
        row |= {f"{kind} per {name}": getattr(spend, kind) if spend else None for kind in COST_KINDS}
    return row
