"""All that the index shows, put together from runs and from what was seen in each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlagentbench.reports.contamination import Gap, differences
from mlagentbench.reports.metrics import Cell, Summary, summarise
from mlagentbench.reports.runs import Run
from mlagentbench.reports.site import costs, pictures, runlist, standing
from mlagentbench.reports.site.course import Course, course
from mlagentbench.reports.site.facts import Facts, facts, listed
from mlagentbench.reports.site.grids import Grid, grids
from mlagentbench.reports.site.judged import Marks, marks
from mlagentbench.reports.site.modes import Modes, modes
from mlagentbench.reports.site.pictures import Picture
from mlagentbench.reports.site.runlist import Entry
from mlagentbench.reports.site.seen import Seen
from mlagentbench.reports.site.standing import Standing
from mlagentbench.reports.site.tables import Table


@dataclass(frozen=True)
class Content:
    """The report before it is written."""

    facts: Facts
    summary: Summary
    entrants: Sequence[str]
    grids: Sequence[Grid]
    modes: Modes
    costs: Table
    course: Course
    judged: Marks | None
    standing: Standing | None
    gaps: Sequence[Gap]
    entries: Sequence[Entry]
    tables: Sequence[Table]
    pictures: Sequence[Picture]

    @property
    def editions(self) -> str:
        """In words."""
        return f"{listed(self.facts.editions)} edition{'s' * (len(self.facts.editions) > 1)}"

    @property
    def overall(self) -> list[Cell]:
        """Every contestant over all tasks, the best first."""
        return sorted(self.summary.overall, key=lambda cell: self.entrants.index(cell.who))

    @property
    def metered(self) -> bool:
        """Whether any run asked a model."""
        return any(entry.run.result and entry.run.result.tokens for entry in self.entries)

    @property
    def mixed(self) -> bool:
        """Whether runs are from several machines or versions."""
        settings = self.summary.settings
        return (
            len({words for each in settings for words in each.hardware}) > 1
            or len({v for each in settings for v in each.versions}) > 1
        )

    def of(self, section: str) -> list[Picture]:
        """The pictures of a section."""
        return [picture for picture in self.pictures if picture.section == section]


def content(runs: Sequence[Run], pages: Sequence[str], seen: Sequence[Seen]) -> Content:
    """Everything, once."""
    known, summary = facts(runs), summarise(runs)
    entrants = standing.order(summary)
    boards = grids(summary, entrants)
    wrong = modes(runs, seen, entrants)
    curves = course(runs, seen, list(boards[0].tasks), entrants)
    results = standing.outcomes(runs)
    ranked = standing.standing(results, entrants)
    near, above = standing.profiles(summary, entrants), standing.distributions(results, entrants)
    entries, spent = runlist.entries(runs, pages, seen), costs.table(summary, entrants)
    spending = {kind: costs.marks(runs, summary, entrants, kind) for kind in costs.KINDS}
    drawn = [
        *pictures.of_grids(boards, known.foot),
        *pictures.of_modes(wrong, known.foot),
        *pictures.of_costs(spending, known.foot),
        *pictures.of_course(curves, known.foot),
        *pictures.of_profiles(near, above, known.foot),
    ]
    tables = [
        _cells(summary),
        _settings(summary),
        wrong.table(),
        spent,
        standing.table(near, above),
        runlist.table(entries),
    ]
    opinions, gaps = marks(runs, entrants), differences(runs)
    tables += [opinions.table()] if opinions else []
    tables += ranked.tables() if ranked else []
    tables += [curves.table()] if curves.graded else []
    tables += [_gaps(gaps)] if gaps else []
    return Content(
        known, summary, entrants, boards, wrong, spent, curves, opinions, ranked, gaps, entries, tables, drawn
    )


def _cells(summary: Summary) -> Table:
    rows = [dict(_flat(cell.model_dump(mode="json"))) for cell in (*summary.cells, *summary.overall)]
    return Table("cells", "Every figure of every task and contestant; an empty task is the mean over tasks", rows)


def _gaps(gaps: Sequence[Gap]) -> Table:
    title = "Improvement on public data and on data drawn by a hidden seed; an empty task is the mean over tasks"
    return Table("contamination", title, [gap.model_dump(mode="json") for gap in gaps])


def _settings(summary: Summary) -> Table:
    rows = [dict(_flat(setting.model_dump(mode="json"))) for setting in summary.settings]
    return Table("settings", "What the runs of each task rest on", rows)


def _flat(record: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """A record within a record becomes columns of its own."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name} ")
        elif isinstance(value, list):
            yield f"{before}{name}", "; ".join(map(str, value))
        else:
            yield f"{before}{name}", value
