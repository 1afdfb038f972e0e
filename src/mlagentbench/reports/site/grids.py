"""Success and improvement in the layout of the paper: tasks by contestants, and the paper's own columns beside."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlagentbench.reports import paper
from mlagentbench.reports.metrics import Cell, Estimate, Summary
from mlagentbench.reports.site.tables import Row, Table, latex, markdown

AVERAGE = "Average"
NONE = "–"


@dataclass(frozen=True)
class Box:
    """One cell: its figure, the interval, what it is of, and what must stand beside it."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    of: str = ""
    apart: str = ""


@dataclass(frozen=True)
class Grid:
    """A whole table; `signed` figures are improvements, others are shares."""

    name: str
    title: str
    tasks: Mapping[str, str]  # label in this report, and name in the suite
    entrants: Sequence[str]
    boxes: Mapping[tuple[str, str], Box]
    printed: paper.Printed | None  # the paper's columns
    signed: bool

    def box(self, task: str, who: str) -> Box:
        """A cell, also one without runs."""
        return self.boxes.get((task, who), Box())

    @property
    def rows(self) -> list[str]:
        """Tasks, and the average."""
        return [*self.tasks, AVERAGE]

    @property
    def columns(self) -> tuple[str, ...]:
        """The paper's contestants."""
        return self.printed.entrants if self.printed else ()

    def quoted(self, task: str, name: str) -> float | None:
        """What the paper printed; its average is over all of its tasks."""
        if not self.printed:
            return None
        return (
            self.printed.averages[name] if task == AVERAGE else self.printed.cells.get(self.tasks[task], {}).get(name)
        )

    def text(self, value: float | None) -> str:
        """A figure as the paper prints it: per cent, one decimal."""
        if value is None:
            return NONE
        text = f"{100 * value:+.1f}" if self.signed else f"{100 * value:.1f}"
        return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")

    def span(self, box: Box) -> str:
        """The interval in whole per cent."""
        if box.low is None or box.high is None:
            return ""
        low, high = (
            f"{100 * bound:{'+' if self.signed else ''}.0f}".replace("-", "−") for bound in (box.low, box.high)
        )
        return f"{low} to {high}"

    def heat(self, value: float | None) -> str:
        """How strongly a cell is coloured: a class of the page's style."""
        if value is None:
            return "none"
        level = round(max(-1.0, min(1.0, value)) * 10)
        return f"up-{level}" if level >= 0 else f"down-{-level}"

    def table(self) -> Table:
        """The same for programs: shares, not per cent."""
        rows: list[Row] = []
        for task in self.rows:
            row: dict[str, Any] = {"task": task}
            for who in self.entrants:
                box = self.box(task, who)
                row |= {who: box.value, f"{who} low": box.low, f"{who} high": box.high, f"{who} of": box.of or None}
                row[f"{who} apart"] = box.apart or None
            rows.append(row | {f"paper: {name}": self.quoted(task, name) for name in self.columns})
        return Table(self.name, self.title, rows)

    def files(self, about: str, editions: str) -> dict[str, bytes]:
        """Every form of it."""
        lines = [[task, *self._line(task)] for task in self.rows]
        ours, theirs = f"this report ({editions})", "the paper (its own data: not comparable)"
        groups = [(ours, len(self.entrants))] + ([(theirs, len(self.columns))] if self.columns else [])
        marked = ["Task", *self.entrants, *(f"paper: {name}" for name in self.columns)]
        note = f"{self.title}, per cent. {about}." + (f" Columns of {theirs}." if self.columns else "")
        return {
            **self.table().files(about),
            f"{self.name}.md": markdown(marked, lines, note),
            f"{self.name}.tex": latex(groups, ["Task", *self.entrants, *self.columns], lines, note),
        }

    def _line(self, task: str) -> Iterator[str]:
        for who in self.entrants:
            box = self.box(task, who)
            beside = "; ".join(filter(None, (box.of, box.apart)))
            yield self.text(box.value) + (f" ({beside})" if beside else "")
        yield from (self.text(self.quoted(task, name)) for name in self.columns)


def in_order(summary: Summary) -> dict[str, str]:
    """Tasks by their labels, in the order of the paper, then all others by name."""
    place = {task: number for number, task in enumerate(paper.success_rate().tasks)}
    named = {setting.label: setting.task for setting in summary.settings}
    order = sorted(summary.tasks, key=lambda label: (place.get(named[label], len(place)), label.lower()))
    return {label: named[label] for label in order}


def grids(summary: Summary, entrants: Sequence[str]) -> tuple[Grid, Grid, Grid]:
    """Success by the paper's rule, success with the noise test, and improvement among valid submissions."""
    known = not {setting.task for setting in summary.settings}.isdisjoint(paper.success_rate().tasks)
    rates, gains = (paper.success_rate(), paper.improvement()) if known else (None, None)
    order = in_order(summary)

    def grid(name: str, title: str, box: Callable[[Cell], Box], printed: paper.Printed | None, signed: bool) -> Grid:
        boxes = {(cell.task or AVERAGE, cell.who): box(cell) for cell in (*summary.cells, *summary.overall)}
        return Grid(name, title, order, entrants, boxes, printed, signed)

    return (
        grid("success", "Success: more than 10 % better than the starter", _improved, rates, signed=False),
        grid("success-beyond-noise", "Success that noise does not explain", _success, None, signed=False),
        grid("improvement", "Improvement over the starter among valid submissions", _gain, gains, signed=True),
    )


def _improved(cell: Cell) -> Box:
    return _rate(cell, cell.improved_rate, cell.improved)


def _success(cell: Cell) -> Box:
    return _rate(cell, cell.success_rate, cell.success)


def _rate(cell: Cell, estimate: Estimate, count: int) -> Box:
    return _box(cell, estimate, f"{count}/{cell.judged}" if cell.judged else "")


def _gain(cell: Cell) -> Box:
    return _box(cell, cell.improvement, f"{cell.valid}/{cell.counted} valid" if cell.counted else "")


def _box(cell: Cell, estimate: Estimate, counts: str) -> Box:
    of = counts if cell.task else f"{estimate.n} task{'s' * (estimate.n != 1)}"
    return Box(estimate.value, estimate.low, estimate.high, of, apart(cell))


def apart(cell: Cell) -> str:
    """Runs that are in no rate, or are not like the others."""
    counts = {"fault": cell.faults, "unfinished": cell.unfinished, "unsandboxed": cell.unsandboxed}
    return ", ".join(
        f"{count} {name}{'s' * (name == 'fault' and count > 1)}" for name, count in counts.items() if count
    )
