"""Success and improvement in the layout of the paper: tasks by contestants, and the paper's own columns beside."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlagentbench.analysis import paper
from mlagentbench.analysis.metrics import Cell, Estimate, Summary
from mlagentbench.pages.site.tables import DataTable, TableRow, to_latex, to_markdown

AVERAGE_ROW = "Average"
NO_VALUE = "–"


@dataclass(frozen=True)
class GridCell:
    """One cell: its figure, the interval, what it is of, and what must stand beside it."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    counts: str = ""
    excluded: str = ""


@dataclass(frozen=True)
class Grid:
    """A whole table; `signed` figures are improvements, others are shares."""

    name: str
    title: str
    tasks: Mapping[str, str]  # label in this report, and name in the suite
    agents: Sequence[str]
    cells: Mapping[tuple[str, str], GridCell]
    paper_results: paper.PaperTable | None  # the paper's columns
    signed: bool

    def cell(self, task: str, who: str) -> GridCell:
        """A cell, also one without runs."""
        return self.cells.get((task, who), GridCell())

    @property
    def rows(self) -> list[str]:
        """Tasks, and the average."""
        return [*self.tasks, AVERAGE_ROW]

    @property
    def paper_agents(self) -> tuple[str, ...]:
        """The paper's contestants."""
        return self.paper_results.agents if self.paper_results else ()

    def paper_value(self, task: str, name: str) -> float | None:
        """What the paper printed; its average is over all of its tasks."""
        if not self.paper_results:
            return None
        return (
            self.paper_results.averages[name]
            if task == AVERAGE_ROW
            else self.paper_results.cells.get(self.tasks[task], {}).get(name)
        )

    def format_value(self, value: float | None) -> str:
        """A figure as the paper prints it: per cent, one decimal."""
        if value is None:
            return NO_VALUE
        text = f"{100 * value:+.1f}" if self.signed else f"{100 * value:.1f}"
        return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")

    def format_interval(self, box: GridCell) -> str:
        """The interval in whole per cent."""
        if box.low is None or box.high is None:
            return ""
        low, high = (
            f"{100 * bound:{'+' if self.signed else ''}.0f}".replace("-", "−")
            for bound in (box.low, box.high)
        )
        return f"{low} to {high}"

    def heat_class(self, value: float | None) -> str:
        """How strongly a cell is coloured: a class of the page's style."""
        if value is None:
            return "none"
        level = round(max(-1.0, min(1.0, value)) * 10)
        return f"up-{level}" if level >= 0 else f"down-{-level}"

    def to_table(self) -> DataTable:
        """The same for programs: shares, not per cent."""
        rows: list[TableRow] = []
        for task in self.rows:
            row: dict[str, Any] = {"task": task}
            for who in self.agents:
                box = self.cell(task, who)
                row |= {
                    who: box.value,
                    f"{who} low": box.low,
                    f"{who} high": box.high,
                    f"{who} of": box.counts or None,
                }
                row[f"{who} apart"] = box.excluded or None
            rows.append(row | {f"paper: {name}": self.paper_value(task, name) for name in self.paper_agents})
        return DataTable(self.name, self.title, rows)

    def files(self, about: str, editions: str) -> dict[str, bytes]:
        """Every form of it."""
        lines = [[task, *self._format_row(task)] for task in self.rows]
        ours, theirs = f"this report ({editions})", "the paper (its own data: not comparable)"
        groups = [(ours, len(self.agents))] + (
            [(theirs, len(self.paper_agents))] if self.paper_agents else []
        )
        marked = ["Task", *self.agents, *(f"paper: {name}" for name in self.paper_agents)]
        note = f"{self.title}, per cent. {about}." + (f" Columns of {theirs}." if self.paper_agents else "")
        return {
            **self.to_table().files(about),
            f"{self.name}.md": to_markdown(marked, lines, note),
            f"{self.name}.tex": to_latex(groups, ["Task", *self.agents, *self.paper_agents], lines, note),
        }

    def _format_row(self, task: str) -> Iterator[str]:
        for who in self.agents:
            box = self.cell(task, who)
            beside = "; ".join(filter(None, (box.counts, box.excluded)))
            yield self.format_value(box.value) + (f" ({beside})" if beside else "")
        yield from (self.format_value(self.paper_value(task, name)) for name in self.paper_agents)


def order_tasks(summary: Summary) -> dict[str, str]:
    """Tasks by their labels, in the order of the paper, then all others by name."""
    place = {task: number for number, task in enumerate(paper.load_success_rates().tasks)}
    named = {setting.label: setting.task for setting in summary.settings}
    order = sorted(summary.tasks, key=lambda label: (place.get(named[label], len(place)), label.lower()))
    return {label: named[label] for label in order}


def build_grids(summary: Summary, entrants: Sequence[str]) -> tuple[Grid, Grid, Grid]:
    """Success by the paper's rule, success with the noise test, and improvement among valid submissions."""
    known = not {setting.task for setting in summary.settings}.isdisjoint(paper.load_success_rates().tasks)
    rates, gains = (paper.load_success_rates(), paper.load_improvements()) if known else (None, None)
    order = order_tasks(summary)

    def grid(
        name: str, title: str, box: Callable[[Cell], GridCell], printed: paper.PaperTable | None, signed: bool
    ) -> Grid:
        boxes = {
            (cell.task or AVERAGE_ROW, cell.agent): box(cell) for cell in (*summary.cells, *summary.overall)
        }
        return Grid(name, title, order, entrants, boxes, printed, signed)

    return (
        grid(
            "success", "Success: more than 10 % better than the starter", _improved_cell, rates, signed=False
        ),
        grid(
            "success-beyond-noise", "Success that noise does not explain", _success_cell, None, signed=False
        ),
        grid(
            "improvement",
            "Improvement over the starter among valid submissions",
            _improvement_cell,
            gains,
            signed=True,
        ),
    )


def _improved_cell(cell: Cell) -> GridCell:
    return _rate_cell(cell, cell.improved_rate, cell.improved)


def _success_cell(cell: Cell) -> GridCell:
    return _rate_cell(cell, cell.success_rate, cell.success)


def _rate_cell(cell: Cell, estimate: Estimate, count: int) -> GridCell:
    return _grid_cell(cell, estimate, f"{count}/{cell.judged}" if cell.judged else "")


def _improvement_cell(cell: Cell) -> GridCell:
    return _grid_cell(cell, cell.improvement, f"{cell.valid}/{cell.counted} valid" if cell.counted else "")


def _grid_cell(cell: Cell, estimate: Estimate, counts: str) -> GridCell:
    of = counts if cell.task else f"{estimate.n} task{'s' * (estimate.n != 1)}"
    return GridCell(estimate.value, estimate.low, estimate.high, of, format_excluded(cell))


def format_excluded(cell: Cell) -> str:
    """Runs that are in no rate, or are not like the others."""
    counts = {"fault": cell.faults, "unfinished": cell.unfinished, "unsandboxed": cell.unsandboxed}
    return ", ".join(
        f"{count} {name}{'s' * (name == 'fault' and count > 1)}" for name, count in counts.items() if count
    )
