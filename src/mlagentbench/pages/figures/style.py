"""How figures look: columns of a paper, a palette that the colour-blind can tell apart, text that stays text."""

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

COLUMN_WIDTH_IN, PAGE_WIDTH_IN = 3.3, 6.8  # inches: one column of a two-column paper, and both
TEXT_COLOUR, MUTED_COLOUR, GRID_COLOUR, BACKGROUND_COLOUR = "#1b1f24", "#5f6670", "#d3d7dd", "#ffffff"
SERIES_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#8c6d46",
    "#6b6ecf",
)  # after Okabe and Ito
MARKERS = "osD^vPX"  # one fewer than colours, so that a second round pairs them anew
DASHES = ("-", "--", "-.", ":")
LOW_COLOUR, MIDDLE_COLOUR, HIGH_COLOUR = "#d55e00", "#f7f7f7", "#0072b2"
POINTS_PER_INCH = 72  # points
MAX_LEGEND_LINE_CHARS = 40  # characters on a line of a legend

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
    "axes.edgecolor": MUTED_COLOUR,
    "axes.labelcolor": TEXT_COLOUR,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID_COLOUR,
    "grid.linewidth": 0.5,
    "text.color": TEXT_COLOUR,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "xtick.color": MUTED_COLOUR,
    "ytick.color": MUTED_COLOUR,
    "xtick.labelcolor": TEXT_COLOUR,
    "ytick.labelcolor": TEXT_COLOUR,
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
    "svg.hashsalt": "mlagentbench",  # the same figures give the same bytes
}
Params = ParamSpec("Params")


def styled_figure(draw: Callable[Params, Figure]) -> Callable[Params, dict[str, bytes]]:
    """Draw in the style above, and give the figure as files: ending and bytes."""

    @wraps(draw)
    def drawn(*args: Params.args, **kwargs: Params.kwargs) -> dict[str, bytes]:
        with matplotlib.rc_context(RC_PARAMS), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Glyph"
            )  # a name in another script is drawn as boxes, but stays text
            figure = draw(*args, **kwargs)
            files = {"svg": _save_figure(figure, "svg", {"Date": None})}
            figure.set_layout_engine("none")  # the first drawing has found every place
            return {**files, "pdf": _save_figure(figure, "pdf", {"CreationDate": None})}

    return drawn


def _save_figure(figure: Figure, kind: str, metadata: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format=kind, metadata=metadata)
    return target.getvalue()


def create_figure(width: float, height: float, foot: str) -> Figure:
    """An empty figure of `height` inches over its foot, which says in small print what the figure rests on."""
    lines = textwrap.wrap(foot, int(width * 27))
    below = (len(lines) * 6.6 + 4) / POINTS_PER_INCH if lines else 0.0
    whole = height + below
    figure = Figure(figsize=(width, whole))
    figure.set_layout_engine(
        "constrained", rect=(0, below / whole, 1, height / whole), w_pad=0.03, h_pad=0.03
    )
    figure.text(
        0.01,
        2 / POINTS_PER_INCH / whole,
        "\n".join(lines),
        fontsize=5.5,
        color=MUTED_COLOUR,
        va="bottom",
        linespacing=1.25,
    )
    return figure


def assign_line_styles(names: list[str]) -> dict[str, dict[str, Any]]:
    """A colour, a marker and a dash for each name; however many there are, no two look the same."""
    colours, markers = islice(cycle(SERIES_COLOURS), len(names)), islice(cycle(MARKERS), len(names))
    dashes = (DASHES[number // len(SERIES_COLOURS) % len(DASHES)] for number in range(len(names)))
    return {
        name: {"color": colour, "marker": marker, "linestyle": dash}
        for name, colour, marker, dash in zip(names, colours, markers, dashes, strict=True)
    }


def set_integer_ticks(axes: Axes) -> None:
    """Ticks of a count."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def set_compact_ticks(axes: Axes) -> None:
    """Ticks with thousands and millions as people write them."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    def written(value: float, place: int | None) -> str:
        for size, letter in ((1e6, "M"), (1e3, "k")):
            if abs(value) >= size:
                return f"{value / size:g}{letter}"
        return f"{value:g}"

    axes.xaxis.set_major_formatter(FuncFormatter(written))
    axes.xaxis.set_minor_formatter(NullFormatter())


def set_percent_ticks(axes: Axes, axis: str = "y") -> None:
    """Ticks of a share as per cent."""
    from matplotlib.ticker import PercentFormatter

    (axes.yaxis if axis == "y" else axes.xaxis).set_major_formatter(PercentFormatter(1.0))


def add_legend(figure: Figure, axes: Axes, width: float) -> None:
    """One legend over the axes, in as many columns as its names allow."""
    handles, labels = axes.get_legend_handles_labels()
    handles = [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles]
    if labels:
        columns = _legend_columns(labels, width)
        figure.legend(
            handles, labels, loc="outside upper left", ncols=columns, columnspacing=1.2, borderaxespad=0.2
        )


def legend_height(names: Iterable[str], width: float) -> float:
    """The inches that a legend of these names takes."""
    labels = [wrap_name(name, MAX_LEGEND_LINE_CHARS) for name in names]
    lines = sum(label.count("\n") + 1 for label in labels)
    return 0.145 * -(-lines // _legend_columns(labels, width)) if labels else 0.0


def _legend_columns(labels: Sequence[str], width: float) -> int:
    longest = max(len(line) for label in labels for line in label.split("\n"))
    return max(1, min(len(labels), int(width * 18 / (longest + 7))))


def wrap_name(name: str, width: int = 26) -> str:
    """A name on lines of some width, broken where names have joints."""
    lines = [""]
    for part in re.findall(rf"[^\s:/,-]{{1,{width}}}[\s:/,-]*|[\s:/,-]+", reveal_invisible_chars(name)):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)
