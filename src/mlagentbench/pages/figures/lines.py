"""Curves, a line for each contestant: anytime curves and performance profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlagentbench.pages.figures.style import (
    COLUMN_WIDTH_IN,
    MAX_LEGEND_LINE_CHARS,
    MUTED_COLOUR,
    PAGE_WIDTH_IN,
    add_legend,
    assign_line_styles,
    create_figure,
    legend_height,
    set_compact_ticks,
    set_integer_ticks,
    set_percent_ticks,
    styled_figure,
    wrap_name,
)

MAX_PANEL_COLUMNS = 4  # panels side by side
AxisScale = Literal["count", "share", "log"]
MIN_IMPROVEMENT_SHOWN = -1.05  # one state that is fifteen times worse than the starter would flatten all else
MAX_MARKED_POINTS = 12  # points of a curve that are marked one by one


@dataclass(frozen=True)
class Curve:
    """One contestant's points, and around them what they may as well be."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@styled_figure
def draw_curves(lines: Mapping[str, Curve], x: str, y: str, foot: str, scale: AxisScale = "count") -> Figure:
    """One panel, all of 0 to 100 % high; along it a count, a share, or something that grows by orders."""
    figure = create_figure(COLUMN_WIDTH_IN, 1.75 + legend_height(lines, COLUMN_WIDTH_IN), foot)
    axes = figure.subplots()
    _draw_lines(axes, lines, list(lines))
    axes.set(xlabel=x, ylabel=y, ylim=(-0.03, 1.03), xscale="log" if scale == "log" else "linear")
    if scale == "log":
        set_compact_ticks(axes)
    if scale == "count":
        set_integer_ticks(axes)
    if scale == "share":
        set_percent_ticks(axes, "x")
    set_percent_ticks(axes)
    add_legend(figure, axes, COLUMN_WIDTH_IN)
    return figure


@styled_figure
def draw_panels(tasks: Mapping[str, Mapping[str, Curve]], x: str, y: str, foot: str) -> Figure:
    """A small panel for each task, the same line for the same contestant everywhere."""
    columns = min(len(tasks), MAX_PANEL_COLUMNS)
    rows = -(-len(tasks) // columns)
    names = list(dict.fromkeys(name for lines in tasks.values() for name in lines))
    width = PAGE_WIDTH_IN if columns > 1 else COLUMN_WIDTH_IN
    figure = create_figure(width, 1.35 * rows + 0.25 + legend_height(names, width), foot)
    cells = figure.subplots(rows, columns, squeeze=False)
    for axes, (task, lines) in zip(cells.flat, tasks.items(), strict=False):
        _draw_lines(axes, lines, names)
        axes.axhline(0.0, color=MUTED_COLOUR, linewidth=0.6)
        axes.set_title(wrap_name(task, 24))
        axes.set_ylim(bottom=max(axes.get_ylim()[0], MIN_IMPROVEMENT_SHOWN))
        set_integer_ticks(axes)
        set_percent_ticks(axes)
    for axes in cells[:, 0]:
        axes.set_ylabel(y)
    for axes in cells.flat[max(len(tasks) - columns, 0) : len(tasks)]:
        axes.set_xlabel(x)
    for axes in cells.flat[len(tasks) :]:
        axes.set_visible(False)
    everyone = cells.flat[0]
    shown = set(everyone.get_legend_handles_labels()[1])
    for name, look in assign_line_styles(names).items():
        if wrap_name(name, MAX_LEGEND_LINE_CHARS) not in shown:
            everyone.plot([], [], label=wrap_name(name, MAX_LEGEND_LINE_CHARS), **{**look, "marker": ""})
    add_legend(figure, everyone, width)
    return figure


def _draw_lines(axes: Axes, lines: Mapping[str, Curve], names: list[str]) -> None:
    for name, look in assign_line_styles(names).items():
        if name not in lines:
            continue
        line = lines[name]
        marker = look["marker"] if len(line.x) <= MAX_MARKED_POINTS else ""
        style = {**look, "marker": marker, "markersize": 3}
        axes.plot(
            line.x, line.y, drawstyle="steps-post", label=wrap_name(name, MAX_LEGEND_LINE_CHARS), **style
        )
        if line.low:
            axes.fill_between(
                line.x, line.low, line.high, step="post", color=look["color"], alpha=0.13, linewidth=0
            )
