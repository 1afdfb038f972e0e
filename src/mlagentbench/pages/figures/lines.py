"""Curves, one line per agent: anytime curves and performance profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlagentbench.pages.figures.style import (
    COLUMN_WIDTH_IN,
    MAX_LEGEND_LINE_CHARS,
    MIN_FRACTION_SHOWN,
    MUTED_COLOR,
    PAGE_WIDTH_IN,
    add_legend,
    assign_line_styles,
    create_figure,
    fit_percent_axis,
    legend_height,
    set_compact_ticks,
    set_integer_ticks,
    set_percent_ticks,
    styled_figure,
    wrap_name,
)

AxisScale = Literal["count", "share", "log"]
MAX_PANEL_COLUMNS = 4
MAX_PERCENT_INTERVALS = 6  # between ticks of an x axis in percent: more labels would touch
MAX_MARKED_POINTS = 12  # longer curves have no markers


@dataclass(frozen=True)
class Curve:
    """The points of one agent, optionally with an interval around them."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@styled_figure
def draw_curves(
    curves: Mapping[str, Curve], x_label: str, y_label: str, footer: str, scale: AxisScale = "count"
) -> Figure:
    """Draw one panel with a y axis of at least 0 to 100%; the x axis is a count, a share, or logarithmic."""
    figure = create_figure(COLUMN_WIDTH_IN, 1.75 + legend_height(curves, COLUMN_WIDTH_IN), footer)
    axes = figure.subplots()
    _draw_lines(axes, curves, list(curves))
    x_scale = "log" if scale == "log" else "linear"
    axes.set(xlabel=x_label, ylabel=y_label, xscale=x_scale)
    fit_percent_axis(axes, [value for curve in curves.values() for value in curve.y])
    if scale == "log":
        set_compact_ticks(axes)
    if scale == "count":
        set_integer_ticks(axes)
    if scale == "share":
        set_percent_ticks(axes, "x")
        axes.locator_params(axis="x", nbins=MAX_PERCENT_INTERVALS)
    set_percent_ticks(axes)
    add_legend(figure, axes, COLUMN_WIDTH_IN)
    return figure


@styled_figure
def draw_panels(tasks: Mapping[str, Mapping[str, Curve]], x_label: str, y_label: str, footer: str) -> Figure:
    """Draw one small panel per task; an agent has the same line style in all of them."""
    columns = min(len(tasks), MAX_PANEL_COLUMNS)
    rows = -(-len(tasks) // columns)
    agents = list(dict.fromkeys(agent for curves in tasks.values() for agent in curves))
    width = PAGE_WIDTH_IN if columns > 1 else COLUMN_WIDTH_IN
    figure = create_figure(width, 1.35 * rows + 0.25 + legend_height(agents, width), footer)
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, (task, curves) in zip(panels.flat, tasks.items(), strict=False):
        _draw_lines(axes, curves, agents)
        axes.axhline(0.0, color=MUTED_COLOR, linewidth=0.6)
        axes.set_title(wrap_name(task, 24))
        axes.set_ylim(bottom=max(axes.get_ylim()[0], MIN_FRACTION_SHOWN - 0.05))
        set_integer_ticks(axes)
        set_percent_ticks(axes)
    for axes in panels[:, 0]:
        axes.set_ylabel(y_label)
    for axes in panels.flat[max(len(tasks) - columns, 0) : len(tasks)]:
        axes.set_xlabel(x_label)
    for axes in panels.flat[len(tasks) :]:
        axes.set_visible(False)
    # The legend shows all agents, including those without a line in the first panel.
    first_panel = panels.flat[0]
    drawn = set(first_panel.get_legend_handles_labels()[1])
    for agent, style in assign_line_styles(agents).items():
        label = wrap_name(agent, MAX_LEGEND_LINE_CHARS)
        if label not in drawn:
            first_panel.plot([], [], label=label, **{**style, "marker": ""})
    add_legend(figure, first_panel, width)
    return figure


def _draw_lines(axes: Axes, curves: Mapping[str, Curve], agents: list[str]) -> None:
    for agent, style in assign_line_styles(agents).items():
        if agent not in curves:
            continue
        curve = curves[agent]
        marker = style["marker"] if len(curve.x) <= MAX_MARKED_POINTS else ""
        label = wrap_name(agent, MAX_LEGEND_LINE_CHARS)
        line_style = {**style, "marker": marker, "markersize": 3}
        axes.plot(curve.x, curve.y, drawstyle="steps-post", label=label, **line_style)
        if curve.low:
            fill = {"color": style["color"], "alpha": 0.13, "linewidth": 0}
            axes.fill_between(curve.x, curve.low, curve.high, step="post", **fill)
