"""Heat maps of tasks by agents, with the value of each cell written in it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mlagentbench.pages.figures.style import (
    COLUMN_WIDTH_IN,
    GRID_COLOR,
    HIGH_COLOR,
    LOW_COLOR,
    MIDDLE_COLOR,
    MUTED_COLOR,
    PAGE_WIDTH_IN,
    TEXT_COLOR,
    create_figure,
    styled_figure,
    wrap_name,
)

ROW_HEIGHT_IN = 0.2
MAX_COLOR_IMPROVEMENT = 1.0  # larger improvements have the same color as 100%


@styled_figure
def draw_heatmap(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    texts: Sequence[Sequence[str]],
    label: str,
    footer: str,
    signed: bool = False,
) -> Figure:
    """Draw rates from 0 to 1, or signed improvements; None is an empty cell."""
    width = COLUMN_WIDTH_IN if len(columns) <= 4 and max(map(len, columns)) <= 16 else PAGE_WIDTH_IN
    headers = [wrap_name(name, max(8, int(width * 11 / len(columns)))) for name in columns]
    header_height = 0.13 * max(header.count("\n") + 1 for header in headers)
    figure = create_figure(width, ROW_HEIGHT_IN * len(rows) + header_height + 0.35, footer)
    axes = figure.subplots()
    limit = MAX_COLOR_IMPROVEMENT
    norm = TwoSlopeNorm(0.0, -limit, limit) if signed else Normalize(0.0, 1.0)
    colors = [LOW_COLOR, MIDDLE_COLOR, HIGH_COLOR] if signed else [MIDDLE_COLOR, HIGH_COLOR]
    color_map = LinearSegmentedColormap.from_list("map", colors)
    grid = np.array([[np.nan if value is None else value for value in row] for row in values], dtype=float)
    for (y, x), value in np.ndenumerate(grid):
        color = None if np.isnan(value) else color_map(norm(np.clip(value, -limit, limit)))
        _draw_cell(axes, x, y, color, texts[y][x])
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.set_xticks(np.arange(len(columns)) + 0.5, headers)
    axes.set_yticks(np.arange(len(rows)) + 0.5, [wrap_name(row) for row in rows])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(label, color=MUTED_COLOR, fontsize=6.5)
    return figure


def _draw_cell(axes: Axes, x: int, y: int, color: tuple[float, ...] | None, text: str) -> None:
    fill = {"facecolor": color} if color else {"facecolor": "none", "hatch": "////", "edgecolor": GRID_COLOR}
    axes.add_patch(Rectangle((x + 0.02, y + 0.03), 0.96, 0.94, linewidth=0, **fill))
    is_dark = color is not None and float(np.dot(color[:3], (0.299, 0.587, 0.114))) < 0.5
    text_color = "#ffffff" if is_dark else TEXT_COLOR
    axes.text(x + 0.5, y + 0.52, text, ha="center", va="center", fontsize=6.5, color=text_color)
