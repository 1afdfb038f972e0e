"""Tasks by contestants as a map of colours, the figure of each cell written in it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mlagentbench.pages.figures.style import (
    COLUMN_WIDTH_IN,
    GRID_COLOUR,
    HIGH_COLOUR,
    LOW_COLOUR,
    MIDDLE_COLOUR,
    MUTED_COLOUR,
    PAGE_WIDTH_IN,
    TEXT_COLOUR,
    create_figure,
    styled_figure,
    wrap_name,
)

ROW_HEIGHT_IN = 0.2  # inches
MAX_COLOUR_IMPROVEMENT = 1.0  # an improvement of 100 % has the full colour, and so has whatever is beyond


@styled_figure
def draw_heatmap(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    texts: Sequence[Sequence[str]],
    label: str,
    foot: str,
    signed: bool = False,
) -> Figure:
    """Shares from 0 to 1, or signed improvements; None is an empty cell."""
    width = COLUMN_WIDTH_IN if len(columns) <= 4 and max(map(len, columns)) <= 16 else PAGE_WIDTH_IN
    heads = [wrap_name(name, max(8, int(width * 11 / len(columns)))) for name in columns]
    tall = 0.13 * max(head.count("\n") + 1 for head in heads)
    figure = create_figure(width, ROW_HEIGHT_IN * len(rows) + tall + 0.35, foot)
    axes = figure.subplots()
    norm = (
        TwoSlopeNorm(0.0, -MAX_COLOUR_IMPROVEMENT, MAX_COLOUR_IMPROVEMENT) if signed else Normalize(0.0, 1.0)
    )
    map_ = LinearSegmentedColormap.from_list(
        "map", [LOW_COLOUR, MIDDLE_COLOUR, HIGH_COLOUR] if signed else [MIDDLE_COLOUR, HIGH_COLOUR]
    )
    grid = np.array([[np.nan if value is None else value for value in row] for row in values], dtype=float)
    for (y, x), value in np.ndenumerate(grid):
        _draw_cell(
            axes,
            x,
            y,
            None
            if np.isnan(value)
            else map_(norm(np.clip(value, -MAX_COLOUR_IMPROVEMENT, MAX_COLOUR_IMPROVEMENT))),
            texts[y][x],
        )
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.set_xticks(np.arange(len(columns)) + 0.5, heads)
    axes.set_yticks(np.arange(len(rows)) + 0.5, [wrap_name(row) for row in rows])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(label, color=MUTED_COLOUR, fontsize=6.5)
    return figure


def _draw_cell(axes: Axes, x: int, y: int, colour: tuple[float, ...] | None, text: str) -> None:
    look = (
        {"facecolor": colour} if colour else {"facecolor": "none", "hatch": "////", "edgecolor": GRID_COLOUR}
    )
    axes.add_patch(Rectangle((x + 0.02, y + 0.03), 0.96, 0.94, linewidth=0, **look))
    dark = colour is not None and float(np.dot(colour[:3], (0.299, 0.587, 0.114))) < 0.5
    axes.text(
        x + 0.5,
        y + 0.52,
        text,
        ha="center",
        va="center",
        fontsize=6.5,
        color="#ffffff" if dark else TEXT_COLOUR,
    )
