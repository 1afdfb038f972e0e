"""All figures of a report, each with a caption and with what it rests on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from mlagentbench.pages.figures.bars import draw_error_modes
from mlagentbench.pages.figures.efficiency import EfficiencyPoint, draw_efficiency
from mlagentbench.pages.figures.heatmap import draw_heatmap
from mlagentbench.pages.figures.inline import inline_svg
from mlagentbench.pages.figures.lines import Curve, draw_curves, draw_panels
from mlagentbench.pages.site.anytime_curves import AnytimeCurves
from mlagentbench.pages.site.costs import COST_AXIS_LABELS, CostKind
from mlagentbench.pages.site.error_modes import ErrorModes
from mlagentbench.pages.site.grids import Grid


@dataclass(frozen=True)
class ReportFigure:
    """A figure: its name as a file, a caption, its section, and its files by their endings."""

    name: str
    caption: str
    section: str
    files: Mapping[str, bytes] = field(repr=False)
    wide: bool = False

    @property
    def svg_markup(self) -> Markup:
        """As a part of a page."""
        return inline_svg(self.files["svg"], self.caption)


def grid_figures(grids: Sequence[Grid], foot: str) -> Iterator[ReportFigure]:
    """Heat maps; in the page the tables themselves are coloured."""
    for grid in grids:
        boxes = [[grid.cell(task, who) for who in grid.agents] for task in grid.rows]
        values = [[box.value for box in row] for row in boxes]
        texts = [[grid.format_value(box.value) for box in row] for row in boxes]
        label = f"{grid.title}, per cent"
        yield ReportFigure(
            f"heat-{grid.name}",
            label,
            "grids",
            draw_heatmap(grid.rows, grid.agents, values, texts, label, foot, grid.signed),
        )


def error_mode_figures(modes: ErrorModes, foot: str) -> Iterator[ReportFigure]:
    """Bars of what went wrong; kinds that never occurred are not drawn."""
    kinds = [kind for kind in modes.titles if any(modes.counts[who][kind] for who in modes.runs)]
    if kinds:
        shares = {who: [modes.share(who, kind) for kind in kinds] for who in modes.runs}
        files = draw_error_modes([modes.titles[kind] for kind in kinds], shares, modes.runs, foot)
        yield ReportFigure(
            "error-modes",
            "Share of runs in which each kind of error was found",
            "modes",
            files,
            len(shares) > 1,
        )


def cost_figures(marks: Mapping[CostKind, Sequence[EfficiencyPoint]], foot: str) -> Iterator[ReportFigure]:
    """Success against what it cost; what cost nothing anywhere has no picture."""
    for kind, known in marks.items():
        if known:
            caption = (
                f"Success beyond noise against {COST_AXIS_LABELS[kind]}; means over tasks with 95 % intervals"
            )
            yield ReportFigure(
                f"efficiency-{kind}", caption, "costs", draw_efficiency(known, COST_AXIS_LABELS[kind], foot)
            )


def anytime_figures(course: AnytimeCurves, foot: str) -> Iterator[ReportFigure]:
    """Anytime curves."""
    if not course.graded_runs:
        return
    foot = f"{course.graded_runs} runs with graded steps · {foot}"
    told = "Share of runs whose state is a success beyond noise"
    yield ReportFigure(
        "anytime-steps",
        f"{told}, step by step; mean over tasks",
        "course",
        draw_curves(course.by_step, "step", "success", foot),
    )
    over_time = draw_curves(course.by_time, "seconds", "success", foot, scale="log")
    yield ReportFigure("anytime-time", f"{told}, over time; mean over tasks", "course", over_time)
    improvement = draw_panels(course.by_task, "step", "improvement", foot)
    yield ReportFigure(
        "anytime-tasks",
        "Improvement over the starter, step by step; mean over runs; cut off below −100 %",
        "course",
        improvement,
        len(course.by_task) > 1,
    )


def profile_figures(
    near: Mapping[str, Curve], above: Mapping[str, Curve], foot: str
) -> Iterator[ReportFigure]:
    """How near everybody comes to the best, and how improvements are spread."""
    if any(any(line.y) for line in near.values()):
        drawn = draw_curves(near, "at most so much below the best", "share of tasks", foot, scale="share")
        yield ReportFigure(
            "profile",
            "Performance profile: tasks on which the mean improvement is near the best one's",
            "profile",
            drawn,
        )
    if above:
        drawn = draw_curves(above, "improvement over the starter", "share of runs above", foot, scale="share")
        yield ReportFigure(
            "distribution", "Runs that improve by more than so much; mean over tasks", "profile", drawn
        )
