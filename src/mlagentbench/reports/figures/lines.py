"""Curves, a line for each contestant: anytime curves and performance profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlagentbench.reports.figures.style import (
    COLUMN,
    LABEL,
    MUTED,
    PAGE,
    canvas,
    compact,
    legend,
    legend_height,
    looks,
    per_cent,
    short,
    styled,
    whole_numbers,
)

ABREAST = 4  # panels side by side
Scale = Literal["count", "share", "log"]
LOWEST = -1.05  # one state that is fifteen times worse than the starter would flatten all else
FEW = 12  # points of a curve that are marked one by one


@dataclass(frozen=True)
class Line:
    """One contestant's points, and around them what they may as well be."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@styled
def curves(lines: Mapping[str, Line], x: str, y: str, foot: str, scale: Scale = "count") -> Figure:
    """One panel, all of 0 to 100 % high; along it a count, a share, or something that grows by orders."""
    figure = canvas(COLUMN, 1.75 + legend_height(lines, COLUMN), foot)
    axes = figure.subplots()
    _draw(axes, lines, list(lines))
    axes.set(xlabel=x, ylabel=y, ylim=(-0.03, 1.03), xscale="log" if scale == "log" else "linear")
    if scale == "log":
        compact(axes)
    if scale == "count":
        whole_numbers(axes)
    if scale == "share":
        per_cent(axes, "x")
    per_cent(axes)
    legend(figure, axes, COLUMN)
    return figure


@styled
def panels(tasks: Mapping[str, Mapping[str, Line]], x: str, y: str, foot: str) -> Figure:
    """A small panel for each task, the same line for the same contestant everywhere."""
    columns = min(len(tasks), ABREAST)
    rows = -(-len(tasks) // columns)
    names = list(dict.fromkeys(name for lines in tasks.values() for name in lines))
    width = PAGE if columns > 1 else COLUMN
    figure = canvas(width, 1.35 * rows + 0.25 + legend_height(names, width), foot)
    cells = figure.subplots(rows, columns, squeeze=False)
    for axes, (task, lines) in zip(cells.flat, tasks.items(), strict=False):
        _draw(axes, lines, names)
        axes.axhline(0.0, color=MUTED, linewidth=0.6)
        axes.set_title(short(task, 24))
        axes.set_ylim(bottom=max(axes.get_ylim()[0], LOWEST))
        whole_numbers(axes)
        per_cent(axes)
    for axes in cells[:, 0]:
        axes.set_ylabel(y)
    for axes in cells.flat[max(len(tasks) - columns, 0) : len(tasks)]:
        axes.set_xlabel(x)
    for axes in cells.flat[len(tasks) :]:
        axes.set_visible(False)
    everyone = cells.flat[0]
    shown = set(everyone.get_legend_handles_labels()[1])
    for name, look in looks(names).items():
        if short(name, LABEL) not in shown:
            everyone.plot([], [], label=short(name, LABEL), **{**look, "marker": ""})
    legend(figure, everyone, width)
    return figure


def _draw(axes: Axes, lines: Mapping[str, Line], names: list[str]) -> None:
    for name, look in looks(names).items():
        if name not in lines:
            continue
        line = lines[name]
        marker = look["marker"] if len(line.x) <= FEW else ""
        style = {**look, "marker": marker, "markersize": 3}
        axes.plot(line.x, line.y, drawstyle="steps-post", label=short(name, LABEL), **style)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, step="post", color=look["color"], alpha=0.13, linewidth=0)
