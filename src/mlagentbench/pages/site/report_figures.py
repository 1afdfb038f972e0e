"""All figures of a report, each with a caption and a footer that says what it is based on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from mlagentbench.pages.site.ranking import Yardstick


@dataclass(frozen=True)
class ReportFigure:
    """A figure: its file name, caption, section of the index page, and its files by extension."""

    name: str
    caption: str
    section: str
    files: Mapping[str, bytes] = field(repr=False)
    wide: bool = False

    @property
    def svg_markup(self) -> Markup:
        """The figure as inline SVG for the page."""
        return inline_svg(self.files["svg"], self.caption)


def grid_figures(grids: Iterable[Grid], footer: str) -> Iterator[ReportFigure]:
    """Heat maps as files; the page itself shows the grids as colored tables."""
    for grid in grids:
        cells = [[grid.cell(task, agent) for agent in grid.agents] for task in grid.rows]
        values = [[cell.value for cell in row] for row in cells]
        texts = [[grid.format_value(cell.value) for cell in row] for row in cells]
        label = f"{grid.title}, in percent"
        files = draw_heatmap(grid.rows, grid.agents, values, texts, label, footer, grid.signed)
        yield ReportFigure(f"heat-{grid.name}", label, "grids", files)


def error_mode_figures(error_modes: ErrorModes, footer: str) -> Iterator[ReportFigure]:
    """Bars of the error modes; kinds that never occur are not drawn."""
    kinds = [
        kind
        for kind in error_modes.titles
        if any(error_modes.counts[agent][kind] for agent in error_modes.runs)
    ]
    if kinds:
        shares = {agent: [error_modes.share(agent, kind) for kind in kinds] for agent in error_modes.runs}
        titles = [error_modes.titles[kind] for kind in kinds]
        files = draw_error_modes(titles, shares, error_modes.runs, footer)
        caption = "Fraction of runs with each kind of error"
        yield ReportFigure("error-modes", caption, "error_modes", files, wide=len(shares) > 1)


def cost_figures(
    points_by_kind: Mapping[CostKind, Sequence[EfficiencyPoint]], yardstick: Yardstick, footer: str
) -> Iterator[ReportFigure]:
    """Progress or success against cost; a kind of cost that is zero everywhere has no figure."""
    for kind, points in points_by_kind.items():
        if points:
            label = COST_AXIS_LABELS[kind]
            value, name = (
                ("progress", "Progress") if yardstick == "progress" else ("success", "Success beyond noise")
            )
            caption = f"{name} against {label}; means over tasks with 95% intervals"
            files = draw_efficiency(points, label, value, footer)
            yield ReportFigure(f"efficiency-{kind}", caption, "costs", files)


def anytime_figures(anytime: AnytimeCurves, footer: str) -> Iterator[ReportFigure]:
    """Curves of progress, or of success and improvement, over steps and time."""
    if not anytime.graded_runs:
        return
    footer = f"{anytime.graded_runs} runs with graded steps · {footer}"
    overall = {
        "progress": "Progress of the current state",
        "success": "Fraction of runs whose current state is a success beyond noise",
    }[anytime.overall]
    by_step = draw_curves(anytime.by_step, "step", anytime.overall, footer)
    yield ReportFigure("anytime-steps", f"{overall}, by step; mean over tasks", "anytime", by_step)
    by_time = draw_curves(anytime.by_time, "seconds", anytime.overall, footer, scale="log")
    yield ReportFigure("anytime-time", f"{overall}, by time; mean over tasks", "anytime", by_time)
    by_task = draw_panels(anytime.by_task, "step", anytime.per_task, footer)
    caption = f"{anytime.per_task.capitalize()} by step; mean over runs; axis cut off below −100%"
    yield ReportFigure("anytime-tasks", caption, "anytime", by_task, wide=len(anytime.by_task) > 1)


def profile_figures(
    profiles: Mapping[str, Curve], distributions: Mapping[str, Curve], yardstick: Yardstick, footer: str
) -> Iterator[ReportFigure]:
    """Performance profiles and distributions of progress or improvements."""
    if any(any(curve.y) for curve in profiles.values()):
        files = draw_curves(
            profiles, "distance from the best agent", "fraction of tasks", footer, scale="share"
        )
        caption = (
            f"Performance profile: fraction of tasks with a mean {yardstick} within x of the best agent’s"
        )
        yield ReportFigure("profile", caption, "profile", files)
    if distributions:
        files = draw_curves(distributions, yardstick, "fraction of runs", footer, scale="share")
        caption = f"Distribution: fraction of runs with a {yardstick} above x; mean over tasks"
        yield ReportFigure("distribution", caption, "profile", files)
