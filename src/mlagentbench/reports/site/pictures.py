"""All figures of a report, each with a caption and with what it rests on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from mlagentbench.reports.figures.bars import error_modes
from mlagentbench.reports.figures.efficiency import Mark, efficiency
from mlagentbench.reports.figures.heatmap import heatmap
from mlagentbench.reports.figures.inline import inline
from mlagentbench.reports.figures.lines import Line, curves, panels
from mlagentbench.reports.site.costs import AXES, Kind
from mlagentbench.reports.site.course import Course
from mlagentbench.reports.site.grids import Grid
from mlagentbench.reports.site.modes import Modes


@dataclass(frozen=True)
class Picture:
    """A figure: its name as a file, a caption, its section, and its files by their endings."""

    name: str
    caption: str
    section: str
    files: Mapping[str, bytes] = field(repr=False)
    wide: bool = False

    @property
    def inline(self) -> Markup:
        """As a part of a page."""
        return inline(self.files["svg"], self.caption)


def of_grids(grids: Sequence[Grid], foot: str) -> Iterator[Picture]:
    """Heat maps; in the page the tables themselves are coloured."""
    for grid in grids:
        boxes = [[grid.box(task, who) for who in grid.entrants] for task in grid.rows]
        values = [[box.value for box in row] for row in boxes]
        texts = [[grid.text(box.value) for box in row] for row in boxes]
        label = f"{grid.title}, per cent"
        yield Picture(
            f"heat-{grid.name}",
            label,
            "grids",
            heatmap(grid.rows, grid.entrants, values, texts, label, foot, grid.signed),
        )


def of_modes(modes: Modes, foot: str) -> Iterator[Picture]:
    """Bars of what went wrong; kinds that never occurred are not drawn."""
    kinds = [kind for kind in modes.titles if any(modes.counts[who][kind] for who in modes.runs)]
    if kinds:
        shares = {who: [modes.share(who, kind) for kind in kinds] for who in modes.runs}
        files = error_modes([modes.titles[kind] for kind in kinds], shares, modes.runs, foot)
        yield Picture(
            "error-modes", "Share of runs in which each kind of error was found", "modes", files, len(shares) > 1
        )


def of_costs(marks: Mapping[Kind, Sequence[Mark]], foot: str) -> Iterator[Picture]:
    """Success against what it cost; what cost nothing anywhere has no picture."""
    for kind, known in marks.items():
        if known:
            caption = f"Success beyond noise against {AXES[kind]}; means over tasks with 95 % intervals"
            yield Picture(f"efficiency-{kind}", caption, "costs", efficiency(known, AXES[kind], foot))


def of_course(course: Course, foot: str) -> Iterator[Picture]:
    """Anytime curves."""
    if not course.graded:
        return
    foot = f"{course.graded} runs with graded steps · {foot}"
    told = "Share of runs whose state is a success beyond noise"
    yield Picture(
        "anytime-steps",
        f"{told}, step by step; mean over tasks",
        "course",
        curves(course.by_step, "step", "success", foot),
    )
    over_time = curves(course.by_time, "seconds", "success", foot, scale="log")
    yield Picture("anytime-time", f"{told}, over time; mean over tasks", "course", over_time)
    improvement = panels(course.by_task, "step", "improvement", foot)
    yield Picture(
        "anytime-tasks",
        "Improvement over the starter, step by step; mean over runs; cut off below −100 %",
        "course",
        improvement,
        len(course.by_task) > 1,
    )


def of_profiles(near: Mapping[str, Line], above: Mapping[str, Line], foot: str) -> Iterator[Picture]:
    """How near everybody comes to the best, and how improvements are spread."""
    if any(any(line.y) for line in near.values()):
        drawn = curves(near, "at most so much below the best", "share of tasks", foot, scale="share")
        yield Picture(
            "profile",
            "Performance profile: tasks on which the mean improvement is near the best one's",
            "profile",
            drawn,
        )
    if above:
        drawn = curves(above, "improvement over the starter", "share of runs above", foot, scale="share")
        yield Picture("distribution", "Runs that improve by more than so much; mean over tasks", "profile", drawn)
