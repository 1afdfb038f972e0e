"""What success costs: a mark for each contestant, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlagentbench.reports.figures.style import (
    COLUMN,
    LABEL,
    canvas,
    compact,
    legend,
    legend_height,
    looks,
    per_cent,
    short,
    styled,
)


@dataclass(frozen=True)
class Mark:
    """One contestant: its share of successes and what a run of it cost, each with what it may as well be."""

    who: str
    success: float
    success_range: tuple[float, float]
    cost: float
    cost_range: tuple[float, float]


@styled
def efficiency(marks: Sequence[Mark], label: str, foot: str) -> Figure:
    """Success against tokens, seconds or dollars of a run; the upper left corner is the place to be."""
    figure = canvas(COLUMN, 1.75 + legend_height([mark.who for mark in marks], COLUMN), foot)
    axes = figure.subplots()
    styles = looks([mark.who for mark in marks])
    for mark in marks:
        look = styles[mark.who]
        low, high = mark.success_range
        least, most = mark.cost_range
        axes.errorbar(
            mark.cost,
            mark.success,
            xerr=[[max(mark.cost - least, 0.0)], [max(most - mark.cost, 0.0)]],
            yerr=[[max(mark.success - low, 0.0)], [max(high - mark.success, 0.0)]],
            fmt=look["marker"],
            color=look["color"],
            elinewidth=0.8,
            capsize=1.5,
            label=short(mark.who, LABEL),
        )
    _scale(axes, [mark.cost for mark in marks])
    axes.set_ylim(-0.04, 1.04)
    per_cent(axes)
    axes.set(xlabel=label, ylabel="success")
    compact(axes)
    legend(figure, axes, COLUMN)
    return figure


def _scale(axes: Axes, costs: Sequence[float]) -> None:
    """By orders where costs differ by orders; what is free stays in the picture."""
    least = min((cost for cost in costs if cost > 0), default=1.0)
    if max(costs) <= 20 * least:
        axes.set_xlim(left=-0.03 * (axes.get_xlim()[1] or 1.0))
    elif min(costs) > 0:
        axes.set_xscale("log")
    else:
        axes.set_xscale("symlog", linthresh=least)
        axes.set_xlim(left=-least / 5)
