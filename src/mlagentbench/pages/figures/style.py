"""The style of figures: widths for a paper, a color-blind-safe palette, and text stored as text."""

import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import cycle, islice
from typing import Any, ParamSpec

import matplotlib
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from mlagentbench.pages.layout.invisible_chars import reveal_invisible_chars

COLUMN_WIDTH_IN, PAGE_WIDTH_IN = 3.3, 6.8  # one column of a two-column paper, and both
TEXT_COLOR, MUTED_COLOR, GRID_COLOR, BACKGROUND_COLOR = "#1b1f24", "#5f6670", "#d3d7dd", "#ffffff"
# After Okabe and Ito.
SERIES_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d46", "#6b6ecf")
MARKERS = "osD^vPX"  # one fewer than colors, so that the second round has other combinations
DASHES = ("-", "--", "-.", ":")
LOW_COLOR, MIDDLE_COLOR, HIGH_COLOR = "#d55e00", "#f7f7f7", "#0072b2"
POINTS_PER_INCH = 72
# One state that is fifteen times worse than the starter would flatten everything else.
MIN_FRACTION_SHOWN = -1.0
MAX_LEGEND_LINE_CHARS = 40
FOOTER_CHARS_PER_INCH = 23  # fits even with a wide font

RC_PARAMS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Arial", "Helvetica", "Liberation Sans", "DejaVu Sans"],
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED_COLOR,
    "axes.labelcolor": TEXT_COLOR,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID_COLOR,
    "grid.linewidth": 0.5,
    "text.color": TEXT_COLOR,
    "text.parse_math": False,  # a dollar sign in a name is literal
    "xtick.color": MUTED_COLOR,
    "ytick.color": MUTED_COLOR,
    "xtick.labelcolor": TEXT_COLOR,
    "ytick.labelcolor": TEXT_COLOR,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "mlagentbench",  # makes the output reproducible
}
Params = ParamSpec("Params")


def styled_figure(draw: Callable[Params, Figure]) -> Callable[Params, dict[str, bytes]]:
    """Decorate a drawing function: apply the style and return the figure as files by extension."""

    @wraps(draw)
    def render(*args: Params.args, **kwargs: Params.kwargs) -> dict[str, bytes]:
        with matplotlib.rc_context(RC_PARAMS), warnings.catch_warnings():
            # A glyph that the font lacks is drawn as a box, but the text in the file is complete.
            warnings.filterwarnings("ignore", "Glyph")
            figure = draw(*args, **kwargs)
            files = {"svg": _save_figure(figure, "svg", {"Date": None})}
            # The layout is final after the first drawing.
            figure.set_layout_engine("none")
            return {**files, "pdf": _save_figure(figure, "pdf", {"CreationDate": None})}

    return render


def _save_figure(figure: Figure, file_format: str, metadata: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format=file_format, metadata=metadata)
    return target.getvalue()


def create_figure(width: float, height: float, footer: str) -> Figure:
    """Create an empty figure of `height` inches above its footer, which says what the figure is based on."""
    lines = textwrap.wrap(footer, int(width * FOOTER_CHARS_PER_INCH))
    footer_height = (len(lines) * 6.6 + 4) / POINTS_PER_INCH if lines else 0.0
    total_height = height + footer_height
    figure = Figure(figsize=(width, total_height))
    figure.set_layout_engine(
        "constrained",
        rect=(0, footer_height / total_height, 1, height / total_height),
        w_pad=0.03,
        h_pad=0.03,
    )
    figure.text(
        0.01,
        2 / POINTS_PER_INCH / total_height,
        "\n".join(lines),
        fontsize=5.5,
        color=MUTED_COLOR,
        va="bottom",
        linespacing=1.25,
    )
    return figure


def assign_line_styles(names: list[str]) -> dict[str, dict[str, Any]]:
    """Assign each name a unique combination of color, marker and dash."""
    colors, markers = islice(cycle(SERIES_COLORS), len(names)), islice(cycle(MARKERS), len(names))
    dashes = (DASHES[number // len(SERIES_COLORS) % len(DASHES)] for number in range(len(names)))
    return {
        name: {"color": color, "marker": marker, "linestyle": dash}
        for name, color, marker, dash in zip(names, colors, markers, dashes, strict=True)
    }


def set_integer_ticks(axes: Axes) -> None:
    """Use integer ticks on the x axis."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def set_compact_ticks(axes: Axes) -> None:
    """Write thousands and millions on the x axis as k and M."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    def format_tick(value: float, position: int | None) -> str:
        for unit, suffix in ((1e6, "M"), (1e3, "k")):
            if abs(value) >= unit:
                return f"{value / unit:g}{suffix}"
        return f"{value:g}"

    axes.xaxis.set_major_formatter(FuncFormatter(format_tick))
    axes.xaxis.set_minor_formatter(NullFormatter())


def fit_percent_axis(axes: Axes, values: Sequence[float]) -> None:
    """Show at least 0 to 100%, and more if values lie outside, down to MIN_FRACTION_SHOWN."""
    low, high = max(min(0.0, *values), MIN_FRACTION_SHOWN), max(1.0, *values)
    margin = 0.03 * (high - low)
    axes.set_ylim(low - margin, high + margin)


def set_percent_ticks(axes: Axes, axis: str = "y") -> None:
    """Write shares as percent."""
    from matplotlib.ticker import PercentFormatter

    (axes.yaxis if axis == "y" else axes.xaxis).set_major_formatter(PercentFormatter(1.0))


def add_legend(figure: Figure, axes: Axes, width: float) -> None:
    """Add one legend above the axes, with as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    handles = [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles]
    if labels:
        columns = _legend_columns(labels, width)
        figure.legend(
            handles, labels, loc="outside upper left", ncols=columns, columnspacing=1.2, borderaxespad=0.2
        )


def legend_height(names: Iterable[str], width: float) -> float:
    """The height of a legend with these names in inches."""
    labels = [wrap_name(name, MAX_LEGEND_LINE_CHARS) for name in names]
    lines = sum(label.count("\n") + 1 for label in labels)
    return 0.145 * -(-lines // _legend_columns(labels, width)) if labels else 0.0


def _legend_columns(labels: Sequence[str], width: float) -> int:
    longest = max(len(line) for label in labels for line in label.split("\n"))
    return max(1, min(len(labels), int(width * 18 / (longest + 7))))


def wrap_name(name: str, width: int = 26) -> str:
    """Wrap a name to lines of `width` characters, preferably at spaces and punctuation."""
    lines = [""]
    for part in re.findall(rf"[^\s:/,-]{{1,{width}}}[\s:/,-]*|[\s:/,-]+", reveal_invisible_chars(name)):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)
