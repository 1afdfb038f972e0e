"""Bars of error modes, one panel per agent."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from mlagentbench.pages.figures.style import (
    COLUMN_WIDTH_IN,
    LOW_COLOR,
    MUTED_COLOR,
    PAGE_WIDTH_IN,
    create_figure,
    set_percent_ticks,
    styled_figure,
    wrap_name,
)
from mlagentbench.pages.layout.invisible_chars import reveal_invisible_chars

MAX_BAR_COLUMNS = 5  # agents side by side


@styled_figure
def draw_error_modes(
    kinds: Sequence[str], shares: Mapping[str, Sequence[float]], runs: Mapping[str, int], footer: str
) -> Figure:
    """The fraction of runs with each kind of finding, one panel per agent."""
    columns = min(len(shares), MAX_BAR_COLUMNS)
    rows = -(-len(shares) // MAX_BAR_COLUMNS)
    width = COLUMN_WIDTH_IN if columns <= 1 else PAGE_WIDTH_IN
    titles = {
        agent: f"{wrap_name(agent, 90 // columns)}\n{runs[agent]} run{'s' * (runs[agent] != 1)}"
        for agent in shares
    }
    title_height = 0.12 * max(title.count("\n") + 1 for title in titles.values())
    figure = create_figure(width, rows * (0.16 * len(kinds) + 0.35 + title_height), footer)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    positions = list(range(len(kinds)))
    for axes, agent in zip(panels.flat, shares, strict=False):
        axes.barh(positions, shares[agent], height=0.68, color=LOW_COLOR)
        for position, share in zip(positions, shares[agent], strict=True):
            text = f"{share:.0%}" if share else "0"
            axes.text(share + 0.03, position, text, va="center", fontsize=5.8, color=MUTED_COLOR)
        axes.set_title(titles[agent], fontsize=6.8)
        axes.set(xlim=(0, 1.22), ylim=(len(kinds) - 0.4, -0.6), xticks=[0, 0.5, 1])
        axes.set_yticks(positions, [reveal_invisible_chars(kind) for kind in kinds])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        set_percent_ticks(axes, "x")
    for axes in panels.flat[len(shares) :]:
        axes.set_visible(False)
    return figure
