"""What runs and successes cost: time, tokens, money."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from mlagentbench.records import Result
from mlagentbench.reports import statistics
from mlagentbench.reports.figures.efficiency import Mark
from mlagentbench.reports.metrics import Cell, Summary
from mlagentbench.reports.runs import Run
from mlagentbench.reports.settings import labels
from mlagentbench.reports.site.tables import Table

Kind = Literal["seconds", "tokens", "dollars"]
KINDS: tuple[Kind, ...] = get_args(Kind)
AXES = {"seconds": "seconds a run", "tokens": "tokens a run", "dollars": "dollars a run"}


def marks(runs: Sequence[Run], summary: Summary, order: Sequence[str], kind: Kind) -> list[Mark]:
    """A mark for each contestant: means over tasks, with intervals from runs drawn again within tasks; none if free."""
    spent: dict[str, dict[str, list[float]]] = {}
    for task, run in zip(labels(runs), runs, strict=True):
        if run.result and not run.fault:
            spent.setdefault(run.who, {}).setdefault(task, []).append(_cost(run.result, kind))
    overall = {cell.who: cell for cell in summary.overall}
    found = [_mark(overall[who], list(spent[who].values())) for who in order if who in spent]
    known = [mark for mark in found if mark]
    return known if any(mark.cost for mark in known) else []


def _cost(result: Result, kind: Kind) -> float:
    return {"seconds": result.seconds, "tokens": float(result.tokens), "dollars": result.dollars}[kind]


def _mark(cell: Cell, tasks: Sequence[Sequence[float]]) -> Mark | None:
    rate = cell.success_rate
    if rate.value is None:
        return None
    cost = sum(sum(values) / len(values) for values in tasks) / len(tasks)
    interval = statistics.stratified(tasks)
    low, high = (cost if bound is None else bound for bound in interval)
    least, most = (rate.value if bound is None else bound for bound in (rate.low, rate.high))
    return Mark(cell.who, rate.value, (least, most), cost, (low, high))


def table(summary: Summary, order: Sequence[str]) -> Table:
    """For programs, and for the page."""
    overall = {cell.who: cell for cell in summary.overall}
    return Table("efficiency", "What a run and a success cost, means over tasks", [_row(overall[who]) for who in order])


def _row(cell: Cell) -> dict[str, Any]:
    row: dict[str, Any] = {
        "who": cell.who,
        "tasks": cell.tasks,
        "runs": cell.counted,
        "success": cell.improved_rate.value,
        "success beyond noise": cell.success_rate.value,
    }
    for name, spend in (("run", cell.per_run), ("success", cell.per_success)):
        row |= {f"{kind} per {name}": getattr(spend, kind) if spend else None for kind in KINDS}
    return row
