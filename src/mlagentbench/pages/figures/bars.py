"""What went wrong, contestant by contestant."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from mlagentbench.pages.figures.style import (
    COLUMN_WIDTH_IN,
    LOW_COLOUR,
    MUTED_COLOUR,
    PAGE_WIDTH_IN,
    create_figure,
    set_percent_ticks,
    styled_figure,
    wrap_name,
)
from mlagentbench.pages.layout.invisible_chars import reveal_invisible_chars

MAX_BAR_COLUMNS = 5  # contestants side by side


@styled_figure
def draw_error_modes(
    kinds: Sequence[str], shares: Mapping[str, Sequence[float]], runs: Mapping[str, int], footer: str
) -> Figure:
    """The share of its runs in which each kind of finding occurs, a panel for each contestant."""
    columns = min(len(shares), MAX_BAR_COLUMNS)
    rows = -(-len(shares) // MAX_BAR_COLUMNS)
    width = COLUMN_WIDTH_IN if columns <= 1 else PAGE_WIDTH_IN
    titles = {who: f"{wrap_name(who, 90 // columns)}\n{runs[who]} runs" for who in shares}
    above = 0.12 * max(title.count("\n") + 1 for title in titles.values())
    figure = create_figure(width, rows * (0.16 * len(kinds) + 0.35 + above), footer)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    places = list(range(len(kinds)))
    for axes, who in zip(panels.flat, shares, strict=False):
        axes.barh(places, shares[who], height=0.68, color=LOW_COLOUR)
        for place, share in zip(places, shares[who], strict=True):
            axes.text(
                share + 0.03,
                place,
                f"{share:.0%}" if share else "0",
                va="center",
                fontsize=5.8,
                color=MUTED_COLOUR,
            )
        axes.set_title(titles[who], fontsize=6.8)
        axes.set(xlim=(0, 1.22), ylim=(len(kinds) - 0.4, -0.6), xticks=[0, 0.5, 1])
        axes.set_yticks(places, [reveal_invisible_chars(kind) for kind in kinds])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        set_percent_ticks(axes, "x")
    for axes in panels.flat[len(shares) :]:
        axes.set_visible(False)
    return figure
