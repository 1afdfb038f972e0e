"""Progress, success and improvement as tables of tasks by agents, next to the paper's own columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlagentbench.analysis import paper
from mlagentbench.analysis.metrics import Cell, Estimate, Summary
from mlagentbench.pages.site.tables import DataTable, TableRow, to_latex, to_markdown

AVERAGE_ROW = "Average"
NO_VALUE = "–"
PAPER_HEADING = "the paper (different data, not comparable)"


@dataclass(frozen=True)
class GridCell:
    """A value, its interval, the counts behind it, and runs that must be mentioned with it."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    counts: str = ""
    caveats: str = ""


@dataclass(frozen=True)
class Grid:
    """A table of tasks by agents; `signed` values are improvements, others are rates."""

    name: str
    title: str
    tasks: Mapping[str, str]  # label in this report -> name of the task
    agents: Sequence[str]
    cells: Mapping[tuple[str, str], GridCell]
    paper_results: paper.PaperTable | None
    signed: bool

    def cell(self, task: str, agent: str) -> GridCell:
        """One cell; empty if there are no runs."""
        return self.cells.get((task, agent), GridCell())

    @property
    def rows(self) -> list[str]:
        """All tasks, then the average."""
        return [*self.tasks, AVERAGE_ROW]

    @property
    def paper_agents(self) -> tuple[str, ...]:
        """The agents of the paper, each a column."""
        return self.paper_results.agents if self.paper_results else ()

    def paper_value(self, task: str, agent: str) -> float | None:
        """The value printed in the paper; the average is over its values for the tasks of this report."""
        if not self.paper_results:
            return None
        if task == AVERAGE_ROW:
            values = [self.paper_results.cells[name][agent] for name in self._paper_tasks]
            return sum(values) / len(values) if values else None
        return self.paper_results.cells.get(self.tasks[task], {}).get(agent)

    @property
    def _paper_tasks(self) -> list[str]:
        """The tasks of this report that the paper has, each once."""
        known = self.paper_results.cells if self.paper_results else {}
        return [name for name in dict.fromkeys(self.tasks.values()) if name in known]

    def paper_counts(self, task: str) -> str:
        """Over how many tasks the paper's value of this row is averaged; empty for the row of a task."""
        count = len(self._paper_tasks)
        return f"{count} task{'s' * (count != 1)}" if task == AVERAGE_ROW and self.paper_results else ""

    def format_value(self, value: float | None) -> str:
        """A value the way the paper prints it: percent with one decimal."""
        if value is None:
            return NO_VALUE
        text = f"{100 * value:+.1f}" if self.signed else f"{100 * value:.1f}"
        return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")

    def format_interval(self, cell: GridCell) -> str:
        """The interval of a cell in whole percent."""
        if cell.low is None or cell.high is None:
            return ""
        sign = "+" if self.signed else ""
        low, high = (f"{100 * bound:{sign}.0f}".replace("-", "−") for bound in (cell.low, cell.high))
        return f"{low} to {high}"

    def heat_class(self, value: float | None) -> str:
        """The CSS class that colors a cell by its value."""
        if value is None:
            return "none"
        level = round(max(-1.0, min(1.0, value)) * 10)
        return f"up-{level}" if level >= 0 else f"down-{-level}"

    def to_table(self) -> DataTable:
        """The grid with fractions instead of percent."""
        rows: list[TableRow] = []
        for task in self.rows:
            row: dict[str, Any] = {"task": task}
            for agent in self.agents:
                cell = self.cell(task, agent)
                row |= {agent: cell.value, f"{agent} low": cell.low, f"{agent} high": cell.high}
                row |= {f"{agent} counts": cell.counts or None, f"{agent} caveats": cell.caveats or None}
            row |= {f"paper: {name}": self.paper_value(task, name) for name in self.paper_agents}
            rows.append(
                row | ({"paper counts": self.paper_counts(task) or None} if self.paper_agents else {})
            )
        return DataTable(self.name, self.title, rows)

    def files(self, about: str, editions: str) -> dict[str, bytes]:
        """The grid as CSV, JSON, Markdown and LaTeX: file names and contents."""
        rows = [[task, *self._format_row(task)] for task in self.rows]
        groups = [(f"this report ({editions})", len(self.agents))]
        note = f"{self.title}, in percent. {about}."
        if self.paper_agents:
            groups.append((PAPER_HEADING, len(self.paper_agents)))
            note += f" Columns of {PAPER_HEADING}."
        markdown_headers = ["Task", *self.agents, *(f"paper: {name}" for name in self.paper_agents)]
        latex_headers = ["Task", *self.agents, *self.paper_agents]
        return {
            **self.to_table().files(about),
            f"{self.name}.md": to_markdown(markdown_headers, rows, note),
            f"{self.name}.tex": to_latex(groups, latex_headers, rows, note),
        }

    def _format_row(self, task: str) -> Iterator[str]:
        for agent in self.agents:
            cell = self.cell(task, agent)
            details = "; ".join(filter(None, (cell.counts, cell.caveats)))
            yield self.format_value(cell.value) + (f" ({details})" if details else "")
        counts = f" ({self.paper_counts(task)})" if self.paper_counts(task) else ""
        yield from (self.format_value(self.paper_value(task, name)) + counts for name in self.paper_agents)


def order_tasks(summary: Summary) -> dict[str, str]:
    """Labels and names of the tasks: first those of the paper in its order, then the others by name."""
    paper_order = {task: index for index, task in enumerate(paper.load_success_rates().tasks)}
    task_names = {setting.label: setting.task for setting in summary.settings}
    labels = sorted(
        summary.tasks,
        key=lambda label: (paper_order.get(task_names[label], len(paper_order)), label.lower()),
    )
    return {label: task_names[label] for label in labels}


def build_grids(summary: Summary, agents: Sequence[str]) -> dict[str, Grid]:
    """Success by the paper's criterion, success beyond noise, improvement of valid submissions, progress."""
    paper_tasks = paper.load_success_rates().tasks
    has_paper_task = not {setting.task for setting in summary.settings}.isdisjoint(paper_tasks)
    paper_rates = paper.load_success_rates() if has_paper_task else None
    paper_improvements = paper.load_improvements() if has_paper_task else None
    tasks = order_tasks(summary)

    def build_grid(
        name: str,
        title: str,
        to_grid_cell: Callable[[Cell], GridCell],
        paper_results: paper.PaperTable | None,
        signed: bool,
    ) -> Grid:
        cells = {
            (cell.task or AVERAGE_ROW, cell.agent): to_grid_cell(cell)
            for cell in (*summary.cells, *summary.overall)
        }
        return Grid(name, title, tasks, agents, cells, paper_results, signed)

    success = "Success: more than 10% better than the starter"
    beyond_noise = "Success beyond noise"
    improvement = "Improvement over the starter among valid submissions"
    progress = "Progress from the starter (0) to the expert (100)"
    grids = [
        build_grid("success", success, _improved_cell, paper_rates, signed=False),
        build_grid("success-beyond-noise", beyond_noise, _success_cell, None, signed=False),
        build_grid("improvement", improvement, _improvement_cell, paper_improvements, signed=True),
    ]
    if any(cell.progress.value is not None for cell in summary.cells):
        grids.append(build_grid("progress", progress, _progress_cell, None, signed=False))
    return {grid.name: grid for grid in grids}


def _progress_cell(cell: Cell) -> GridCell:
    return _grid_cell(cell, cell.progress, f"{cell.valid}/{cell.counted} valid" if cell.counted else "")


def _improved_cell(cell: Cell) -> GridCell:
    return _rate_cell(cell, cell.improved_rate, cell.improved)


def _success_cell(cell: Cell) -> GridCell:
    return _rate_cell(cell, cell.success_rate, cell.success)


def _rate_cell(cell: Cell, estimate: Estimate, count: int) -> GridCell:
    return _grid_cell(cell, estimate, f"{count}/{cell.judged}" if cell.judged else "")


def _improvement_cell(cell: Cell) -> GridCell:
    return _grid_cell(cell, cell.improvement, f"{cell.valid}/{cell.counted} valid" if cell.counted else "")


def _grid_cell(cell: Cell, estimate: Estimate, run_counts: str) -> GridCell:
    counts = run_counts if cell.task else f"{estimate.n} task{'s' * (estimate.n != 1)}"
    return GridCell(estimate.value, estimate.low, estimate.high, counts, format_caveats(cell))


def format_caveats(cell: Cell) -> str:
    """Runs that are excluded from rates, or were not sandboxed."""
    counts = {"fault": cell.faults, "unfinished": cell.unfinished, "unsandboxed": cell.unsandboxed}
    return ", ".join(
        f"{count} {name}{'s' * (name == 'fault' and count > 1)}" for name, count in counts.items() if count
    )
