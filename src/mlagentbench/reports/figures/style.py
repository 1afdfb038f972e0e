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

from mlagentbench.reports.look.visible import visible

COLUMN, PAGE = 3.3, 6.8  # inches: one column of a two-column paper, and both
INK, MUTED, LINE, PAPER = "#1b1f24", "#5f6670", "#d3d7dd", "#ffffff"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d46", "#6b6ecf")  # after Okabe and Ito
MARKERS = "osD^vPX"  # one fewer than colours, so that a second round pairs them anew
DASHES = ("-", "--", "-.", ":")
LOW, MIDDLE, HIGH = "#d55e00", "#f7f7f7", "#0072b2"
INCH = 72  # points
LABEL = 40  # characters on a line of a legend

RC: dict[Any, Any] = {
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
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
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
Told = ParamSpec("Told")


def styled(draw: Callable[Told, Figure]) -> Callable[Told, dict[str, bytes]]:
    """Draw in the style above, and give the figure as files: ending and bytes."""

    @wraps(draw)
    def drawn(*args: Told.args, **kwargs: Told.kwargs) -> dict[str, bytes]:
        with matplotlib.rc_context(RC), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a name in another script is drawn as boxes, but stays text
            figure = draw(*args, **kwargs)
            files = {"svg": _bytes(figure, "svg", {"Date": None})}
            figure.set_layout_engine("none")  # the first drawing has found every place
            return {**files, "pdf": _bytes(figure, "pdf", {"CreationDate": None})}

    return drawn


def _bytes(figure: Figure, kind: str, metadata: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format=kind, metadata=metadata)
    return target.getvalue()


def canvas(width: float, height: float, foot: str) -> Figure:
    """An empty figure of `height` inches over its foot, which says in small print what the figure rests on."""
    lines = textwrap.wrap(foot, int(width * 27))
    below = (len(lines) * 6.6 + 4) / INCH if lines else 0.0
    whole = height + below
    figure = Figure(figsize=(width, whole))
    figure.set_layout_engine("constrained", rect=(0, below / whole, 1, height / whole), w_pad=0.03, h_pad=0.03)
    figure.text(0.01, 2 / INCH / whole, "\n".join(lines), fontsize=5.5, color=MUTED, va="bottom", linespacing=1.25)
    return figure


def looks(names: list[str]) -> dict[str, dict[str, Any]]:
    """A colour, a marker and a dash for each name; however many there are, no two look the same."""
    colours, markers = islice(cycle(SERIES), len(names)), islice(cycle(MARKERS), len(names))
    dashes = (DASHES[number // len(SERIES) % len(DASHES)] for number in range(len(names)))
    return {
        name: {"color": colour, "marker": marker, "linestyle": dash}
        for name, colour, marker, dash in zip(names, colours, markers, dashes, strict=True)
    }


def whole_numbers(axes: Axes) -> None:
    """Ticks of a count."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def compact(axes: Axes) -> None:
    """Ticks with thousands and millions as people write them."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    def written(value: float, place: int | None) -> str:
        for size, letter in ((1e6, "M"), (1e3, "k")):
            if abs(value) >= size:
                return f"{value / size:g}{letter}"
        return f"{value:g}"

    axes.xaxis.set_major_formatter(FuncFormatter(written))
    axes.xaxis.set_minor_formatter(NullFormatter())


def per_cent(axes: Axes, axis: str = "y") -> None:
    """Ticks of a share as per cent."""
    from matplotlib.ticker import PercentFormatter

    (axes.yaxis if axis == "y" else axes.xaxis).set_major_formatter(PercentFormatter(1.0))


def legend(figure: Figure, axes: Axes, width: float) -> None:
    """One legend over the axes, in as many columns as its names allow."""
    handles, labels = axes.get_legend_handles_labels()
    handles = [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles]
    if labels:
        columns = _columns(labels, width)
        figure.legend(handles, labels, loc="outside upper left", ncols=columns, columnspacing=1.2, borderaxespad=0.2)


def legend_height(names: Iterable[str], width: float) -> float:
    """The inches that a legend of these names takes."""
    labels = [short(name, LABEL) for name in names]
    lines = sum(label.count("\n") + 1 for label in labels)
    return 0.145 * -(-lines // _columns(labels, width)) if labels else 0.0


def _columns(labels: Sequence[str], width: float) -> int:
    longest = max(len(line) for label in labels for line in label.split("\n"))
    return max(1, min(len(labels), int(width * 18 / (longest + 7))))


def short(name: str, width: int = 26) -> str:
    """A name on lines of some width, broken where names have joints."""
    lines = [""]
    for part in re.findall(rf"[^\s:/,-]{{1,{width}}}[\s:/,-]*|[\s:/,-]+", visible(name)):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)
