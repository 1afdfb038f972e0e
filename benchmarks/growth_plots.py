"""Draws the plots of growth.py: for each axis one SVG with two panels, readable on light and dark pages."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Point = dict[str, Any]
Curve = tuple[str, Callable[[Point], float]]  # the legend, and the figure of a point
AXIS_TITLES = {
    "steps": "steps of a run",
    "files": "files in the workspace",
    "bytes": "MB in the workspace",
    "runs": "runs of a batch",
    "nodes": "nodes, each with 4 runs at a time",
}
STEP: list[Curve] = [
    ("a step", lambda point: point["each_cpu_ms"]),
    ("its lower bound", lambda point: point["floor_cpu_ms"]),
]
FIRST: list[Curve] = [
    ("the first snapshot", lambda point: point["first_cpu_s"] * 1000),
    ("all files copied by hand", lambda point: point["copy_cpu_s"] * 1000),
]
SPACE: list[Curve] = [
    ("memory of the harness", lambda point: point["memory_mb"]),
    ("written to disk", lambda point: point["written_mb"]),
]
RUN: list[Curve] = [
    ("all its processes, with grading", lambda point: point["cpu_s"] / point["runs"] * 1000),
    ("the process of the batch", lambda point: point["each_cpu_ms"]),
]
THROUGHPUT: list[Curve] = [("runs", lambda point: point["runs_per_s"])]
BATCH_PROCESS: list[Curve] = [("the process of the batch", lambda point: point["each_cpu_ms"])]
# Each axis: the titles and the curves of its two panels.
PANELS: dict[str, list[tuple[str, list[Curve]]]] = {
    "steps": [("processor time (ms)", STEP), ("MB", SPACE)],
    "files": [("processor time (ms)", [*STEP, *FIRST]), ("MB", SPACE)],
    "bytes": [("processor time (ms)", [*STEP, *FIRST]), ("MB", SPACE)],
    "runs": [("processor time of a run (ms)", RUN), ("MB", SPACE)],
    "nodes": [("runs per second", THROUGHPUT), ("processor time of a run (ms)", BATCH_PROCESS)],
}
COLORS, MARKERS, DASHES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7"), "osD^", ("-", "--", "-.", ":")
INK_COLOR = "#767b84"  # of text and lines: about the same contrast on white and on a dark page
INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
STYLE: dict[Any, Any] = {
    **dict.fromkeys(INKED, INK_COLOR),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    "svg.fonttype": "none",
    "svg.hashsalt": "growth",  # makes the output reproducible
    "font.size": 9,
    "font.sans-serif": ["Arial", "Helvetica", "Liberation Sans", "DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def draw_axis(axis: str, points: list[Point], path: Path) -> None:
    """Draw the medians of the rounds; vertical lines show the lowest and the highest."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    measured, simulated = split_simulated(points)
    with matplotlib.rc_context(STYLE):
        figure, panels = pyplot.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
        for panel, (title, curves) in zip(panels, PANELS[axis], strict=True):
            for number, (name, curve) in enumerate(curves):
                draw_curve(panel, number, f"{name}, measured" if simulated else name, measured, axis, curve)
                if simulated:
                    draw_curve(panel, number + 1, f"{name}, simulated", simulated, "simulated_nodes", curve)
            if curves is THROUGHPUT:
                draw_ideal(panel, measured, simulated)
            panel.set(xscale="log", yscale="log", xlabel=AXIS_TITLES[axis], ylabel=title)
            for direction in (panel.xaxis, panel.yaxis):
                direction.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))
                direction.set_minor_formatter(FuncFormatter(lambda value, _: ""))
            low, high = panel.get_ylim()
            if high / low < 30:  # a curve that hardly changes must not look as if it did
                panel.set_ylim(low / 5, high * 5)
            elif len(curves) > 2:  # leaves room for the legend
                panel.set_ylim(low, high * 50)
            panel.grid(color=INK_COLOR, alpha=0.25)
            panel.legend()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def split_simulated(points: list[Point]) -> tuple[list[Point], list[Point]]:
    """The measured points and the simulated ones."""
    simulated = [point for point in points if "simulated_nodes" in point]
    return [point for point in points if "simulated_nodes" not in point], simulated


def group_values(points: list[Point], key: str, curve: Callable[[Point], float]) -> dict[int, list[float]]:
    """The values of all rounds, by the size of the point."""
    values = defaultdict(list)
    for point in points:
        values[int(point[key])].append(curve(point))
    return dict(sorted(values.items()))


def draw_curve(
    panel: Any, number: int, name: str, points: list[Point], key: str, curve: Callable[[Point], float]
) -> None:
    values = group_values(points, key, curve)
    medians = [statistics.median(rounds) for rounds in values.values()]
    below = [median - min(rounds) for median, rounds in zip(medians, values.values(), strict=True)]
    above = [max(rounds) - median for median, rounds in zip(medians, values.values(), strict=True)]
    panel.errorbar(
        list(values),
        medians,
        (below, above),
        label=name,
        color=COLORS[number],
        marker=MARKERS[number],
        linestyle=DASHES[number],
        markersize=4,
        linewidth=1.3,
    )


def draw_ideal(panel: Any, measured: list[Point], simulated: list[Point]) -> None:
    """A line through the single real node."""
    rate = statistics.median(point["runs_per_s"] for point in measured if point["nodes"] == 1)
    last = simulated[-1]["simulated_nodes"] if simulated else measured[-1]["nodes"]
    panel.plot(
        [1, last], [rate, rate * last], color=INK_COLOR, linewidth=0.8, label="proportional to the nodes"
    )


def describe_simulation_error(points: list[Point]) -> Iterator[str]:
    """How far the simulation is from the real nodes, where there are real ones."""
    measured, simulated = split_simulated(points)
    for name, curve in (
        ("runs per second", THROUGHPUT[0][1]),
        ("processor time of a run", BATCH_PROCESS[0][1]),
    ):
        real = group_values(measured, "nodes", curve)
        for nodes, rounds in group_values(simulated, "simulated_nodes", curve).items():
            if nodes in real:
                median, value = statistics.median(real[nodes]), statistics.median(rounds)
                error = value / median - 1
                yield f"{name}, {nodes} nodes: {median:.3g} measured, {value:.3g} simulated, {error:+.0%}"
