"""What success costs: a mark for each contestant, with intervals."""

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
    legend_height,
    set_compact_ticks,
    set_percent_ticks,
    styled_figure,
    wrap_name,
)


@dataclass(frozen=True)
class EfficiencyPoint:
    """One contestant: its share of successes and what a run of it cost, each with what it may as well be."""

    agent: str
    success: float
    success_interval: tuple[float, float]
    cost: float
    cost_interval: tuple[float, float]


@styled_figure
def draw_efficiency(marks: Sequence[EfficiencyPoint], label: str, foot: str) -> Figure:
    """Success against tokens, seconds or dollars of a run; the upper left corner is the place to be."""
    figure = create_figure(
        COLUMN_WIDTH_IN, 1.75 + legend_height([mark.agent for mark in marks], COLUMN_WIDTH_IN), foot
    )
    axes = figure.subplots()
    styles = assign_line_styles([mark.agent for mark in marks])
    for mark in marks:
        look = styles[mark.agent]
        low, high = mark.success_interval
        least, most = mark.cost_interval
        axes.errorbar(
            mark.cost,
            mark.success,
            xerr=[[max(mark.cost - least, 0.0)], [max(most - mark.cost, 0.0)]],
            yerr=[[max(mark.success - low, 0.0)], [max(high - mark.success, 0.0)]],
            fmt=look["marker"],
            color=look["color"],
            elinewidth=0.8,
            capsize=1.5,
            label=wrap_name(mark.agent, MAX_LEGEND_LINE_CHARS),
        )
    _set_cost_scale(axes, [mark.cost for mark in marks])
    axes.set_ylim(-0.04, 1.04)
    set_percent_ticks(axes)
    axes.set(xlabel=label, ylabel="success")
    set_compact_ticks(axes)
    add_legend(figure, axes, COLUMN_WIDTH_IN)
    return figure


def _set_cost_scale(axes: Axes, costs: Sequence[float]) -> None:
    """By orders where costs differ by orders; what is free stays in the picture."""
    least = min((cost for cost in costs if cost > 0), default=1.0)
    if max(costs) <= 20 * least:
        axes.set_xlim(left=-0.03 * (axes.get_xlim()[1] or 1.0))
    elif min(costs) > 0:
        axes.set_xscale("log")
    else:
        axes.set_xscale("symlog", linthresh=least)
        axes.set_xlim(left=-least / 5)
