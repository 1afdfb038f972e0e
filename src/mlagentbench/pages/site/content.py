"""All that the index shows, put together from runs and from what was seen in each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlagentbench.analysis.contamination import ContaminationGap, compute_contamination_gaps
from mlagentbench.analysis.metrics import Cell, Summary, summarize_runs
from mlagentbench.analysis.runs import Run
from mlagentbench.pages.site import costs, ranking, report_figures, run_list
from mlagentbench.pages.site.anytime_curves import AnytimeCurves, build_anytime_curves
from mlagentbench.pages.site.error_modes import ErrorModes, count_error_modes
from mlagentbench.pages.site.grids import Grid, build_grids
from mlagentbench.pages.site.judge_scores import JudgeScores, collect_judge_scores
from mlagentbench.pages.site.overview import Overview, build_overview, join_with_and
from mlagentbench.pages.site.ranking import Ranking
from mlagentbench.pages.site.report_figures import ReportFigure
from mlagentbench.pages.site.run_digest import RunDigest
from mlagentbench.pages.site.run_list import RunEntry
from mlagentbench.pages.site.tables import DataTable


@dataclass(frozen=True)
class ReportContent:
    """The report before it is written."""

    overview: Overview
    summary: Summary
    agents: Sequence[str]
    grids: Sequence[Grid]
    error_modes: ErrorModes
    costs: DataTable
    anytime: AnytimeCurves
    judge_scores: JudgeScores | None
    ranking: Ranking | None
    gaps: Sequence[ContaminationGap]
    entries: Sequence[RunEntry]
    tables: Sequence[DataTable]
    figures: Sequence[ReportFigure]

    @property
    def editions_text(self) -> str:
        """In words."""
        return f"{join_with_and(self.overview.editions)} edition{'s' * (len(self.overview.editions) > 1)}"

    @property
    def overall(self) -> list[Cell]:
        """Every contestant over all tasks, the best first."""
        return sorted(self.summary.overall, key=lambda cell: self.agents.index(cell.agent))

    @property
    def uses_models(self) -> bool:
        """Whether any run asked a model."""
        return any(entry.run.result and entry.run.result.tokens for entry in self.entries)

    @property
    def has_mixed_settings(self) -> bool:
        """Whether runs are from several machines or versions."""
        settings = self.summary.settings
        return (
            len({words for each in settings for words in each.hardware}) > 1
            or len({v for each in settings for v in each.versions}) > 1
        )

    def figures_in(self, section: str) -> list[ReportFigure]:
        """The pictures of a section."""
        return [picture for picture in self.figures if picture.section == section]


def build_content(runs: Sequence[Run], pages: Sequence[str], seen: Sequence[RunDigest]) -> ReportContent:
    """Everything, once."""
    known, summary = build_overview(runs), summarize_runs(runs)
    entrants = ranking.order_agents(summary)
    boards = build_grids(summary, entrants)
    wrong = count_error_modes(runs, seen, entrants)
    curves = build_anytime_curves(runs, seen, list(boards[0].tasks), entrants)
    results = ranking.collect_outcomes(runs)
    ranked = ranking.rank_agents(results, entrants)
    near, above = (
        ranking.performance_profiles(summary, entrants),
        ranking.improvement_distributions(results, entrants),
    )
    entries, spent = run_list.build_entries(runs, pages, seen), costs.efficiency_table(summary, entrants)
    spending = {kind: costs.efficiency_points(runs, summary, entrants, kind) for kind in costs.COST_KINDS}
    drawn = [
        *report_figures.grid_figures(boards, known.footer),
        *report_figures.error_mode_figures(wrong, known.footer),
        *report_figures.cost_figures(spending, known.footer),
        *report_figures.anytime_figures(curves, known.footer),
        *report_figures.profile_figures(near, above, known.footer),
    ]
    tables = [
        _cells_table(summary),
        _settings_table(summary),
        wrong.to_table(),
        spent,
        ranking.profile_table(near, above),
        run_list.runs_table(entries),
    ]
    opinions, gaps = collect_judge_scores(runs, entrants), compute_contamination_gaps(runs)
    tables += [opinions.to_table()] if opinions else []
    tables += ranked.to_tables() if ranked else []
    tables += [curves.to_table()] if curves.graded_runs else []
    tables += [_contamination_table(gaps)] if gaps else []
    return ReportContent(
        known, summary, entrants, boards, wrong, spent, curves, opinions, ranked, gaps, entries, tables, drawn
    )


def _cells_table(summary: Summary) -> DataTable:
    rows = [dict(_flatten(cell.model_dump(mode="json"))) for cell in (*summary.cells, *summary.overall)]
    return DataTable(
        "cells", "Every figure of every task and contestant; an empty task is the mean over tasks", rows
    )


def _contamination_table(gaps: Sequence[ContaminationGap]) -> DataTable:
    title = (
        "Improvement on public data and on data drawn by a hidden seed; an empty task is the mean over tasks"
    )
    return DataTable("contamination", title, [gap.model_dump(mode="json") for gap in gaps])


def _settings_table(summary: Summary) -> DataTable:
    rows = [dict(_flatten(setting.model_dump(mode="json"))) for setting in summary.settings]
    return DataTable("settings", "What the runs of each task rest on", rows)


def _flatten(record: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """A record within a record becomes columns of its own."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{before}{name} ")
        elif isinstance(value, list):
            yield f"{before}{name}", "; ".join(map(str, value))
        else:
            yield f"{before}{name}", value
