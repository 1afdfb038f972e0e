"""Progress or success against cost: one point per agent, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlagentbench.pages.figures.style import (
    COLUMN_WIDTH_IN,
    MAX_LEGEND_LINE_CHARS,
    add_legend,
    assign_line_styles,
    create_figure,
    fit_percent_axis,
    legend_height,
    set_compact_ticks,
    set_percent_ticks,
    styled_figure,
    wrap_name,
)

MAX_LINEAR_COST_RATIO = 20  # with a larger ratio of the costs, the axis is logarithmic


@dataclass(frozen=True)
class EfficiencyPoint:
    """The progress or success rate and the cost per run of one agent, with their intervals."""

    agent: str
    value: float
    value_interval: tuple[float, float]
    cost: float
    cost_interval: tuple[float, float]


@styled_figure
def draw_efficiency(points: Sequence[EfficiencyPoint], label: str, value_label: str, footer: str) -> Figure:
    """Progress or success against the cost per run; the best agents are in the upper left corner."""
    agents = [point.agent for point in points]
    figure = create_figure(COLUMN_WIDTH_IN, 1.75 + legend_height(agents, COLUMN_WIDTH_IN), footer)
    axes = figure.subplots()
    styles = assign_line_styles(agents)
    for point in points:
        style = styles[point.agent]
        axes.errorbar(
            point.cost,
            point.value,
            xerr=_error_bar(point.cost, point.cost_interval),
            yerr=_error_bar(point.value, point.value_interval),
            fmt=style["marker"],
            color=style["color"],
            elinewidth=0.8,
            capsize=1.5,
            label=wrap_name(point.agent, MAX_LEGEND_LINE_CHARS),
        )
    _set_cost_scale(axes, [point.cost for point in points])
    fit_percent_axis(axes, [bound for point in points for bound in point.value_interval])
    set_percent_ticks(axes)
    axes.set(xlabel=label, ylabel=value_label)
    set_compact_ticks(axes)
    add_legend(figure, axes, COLUMN_WIDTH_IN)
    return figure


def _error_bar(value: float, interval: tuple[float, float]) -> list[list[float]]:
    low, high = interval
    return [[max(value - low, 0.0)], [max(high - value, 0.0)]]


def _set_cost_scale(axes: Axes, costs: Sequence[float]) -> None:
    """Use a logarithmic axis if costs differ by orders of magnitude; a cost of zero stays visible."""
    lowest = min((cost for cost in costs if cost > 0), default=1.0)
    if max(costs) <= MAX_LINEAR_COST_RATIO * lowest:
        axes.set_xlim(left=-0.03 * (axes.get_xlim()[1] or 1.0))
    elif min(costs) > 0:
        axes.set_xscale("log")
    else:
        axes.set_xscale("symlog", linthresh=lowest)
        axes.set_xlim(left=-lowest / 5)
