"""Everything the report's index page shows, computed from the runs and their digests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlagentbench.analysis.compare import Comparison
from mlagentbench.analysis.contamination import ContaminationGap, compute_contamination_gaps
from mlagentbench.analysis.memory import compare_memory
from mlagentbench.analysis.metrics import Cell, Summary, summarize_runs
from mlagentbench.analysis.runs import Run
from mlagentbench.pages.site import costs, ranking, report_figures, run_list
from mlagentbench.pages.site.anytime_curves import AnytimeCurves, build_anytime_curves
from mlagentbench.pages.site.error_modes import ErrorModes, count_error_modes
from mlagentbench.pages.site.grids import Grid, build_grids
from mlagentbench.pages.site.judge_scores import JudgeScores, collect_judge_scores
from mlagentbench.pages.site.overview import Overview, build_overview, format_editions
from mlagentbench.pages.site.ranking import Ranking
from mlagentbench.pages.site.report_figures import ReportFigure
from mlagentbench.pages.site.run_digest import RunDigest
from mlagentbench.pages.site.run_list import RunEntry
from mlagentbench.pages.site.tables import DataTable


@dataclass(frozen=True)
class ReportContent:
    """The content of a report before it is rendered."""

    overview: Overview
    summary: Summary
    agents: Sequence[str]
    yardstick: ranking.Yardstick
    grids: Mapping[str, Grid]
    error_modes: ErrorModes
    anytime: AnytimeCurves
    judge_scores: JudgeScores | None
    ranking: Ranking | None
    gaps: Sequence[ContaminationGap]
    memory: Sequence[Comparison]
    entries: Sequence[RunEntry]
    tables: Sequence[DataTable]
    figures: Sequence[ReportFigure]

    @property
    def editions_text(self) -> str:
        """The names of all editions, e.g. "open edition"."""
        return format_editions(self.overview.editions)

    @property
    def overall(self) -> list[Cell]:
        """The mean over all tasks of every agent, best agent first."""
        return sorted(self.summary.overall, key=lambda cell: self.agents.index(cell.agent))

    @property
    def uses_models(self) -> bool:
        """Whether any run called a model."""
        return any(entry.run.result and entry.run.result.tokens for entry in self.entries)

    @property
    def has_mixed_settings(self) -> bool:
        """Whether the runs come from several machines or versions."""
        settings = self.summary.settings
        machines = {machine for setting in settings for machine in setting.hardware}
        versions = {version for setting in settings for version in setting.versions}
        return len(machines) > 1 or len(versions) > 1

    def figures_in(self, section: str) -> list[ReportFigure]:
        """The figures of one section of the index page."""
        return [figure for figure in self.figures if figure.section == section]


def build_content(runs: Sequence[Run], pages: Sequence[str], digests: Sequence[RunDigest]) -> ReportContent:
    """Compute all tables and figures; `pages` are the file names of the runs' pages."""
    overview, summary = build_overview(runs), summarize_runs(runs)
    yardstick = ranking.choose_yardstick(runs)
    agents = ranking.order_agents(summary, yardstick)
    grids = build_grids(summary, agents)
    error_modes = count_error_modes(runs, digests, agents)
    anytime = build_anytime_curves(runs, digests, list(grids["success"].tasks), agents, yardstick)
    outcomes = ranking.collect_outcomes(runs)
    ranked = ranking.rank_agents(outcomes, agents, yardstick)
    profiles = ranking.performance_profiles(summary, agents, yardstick)
    distributions = ranking.value_distributions(outcomes, agents, yardstick)
    entries = run_list.build_entries(runs, pages, digests)
    points = {
        kind: costs.efficiency_points(runs, summary, agents, kind, yardstick) for kind in costs.COST_KINDS
    }
    figures = [
        *report_figures.grid_figures(grids.values(), overview.footer),
        *report_figures.error_mode_figures(error_modes, overview.footer),
        *report_figures.cost_figures(points, yardstick, overview.footer),
        *report_figures.anytime_figures(anytime, overview.footer),
        *report_figures.profile_figures(profiles, distributions, yardstick, overview.footer),
    ]
    tables = [
        _cells_table(summary),
        _category_table(summary),
        _settings_table(summary),
        error_modes.to_table(),
        costs.efficiency_table(summary, agents),
        ranking.profile_table(profiles, distributions),
        run_list.runs_table(entries),
    ]
    judge_scores, gaps = collect_judge_scores(runs, agents), compute_contamination_gaps(runs)
    tables += [judge_scores.to_table()] if judge_scores else []
    tables += ranked.to_tables() if ranked else []
    tables += [anytime.to_table()] if anytime.graded_runs else []
    tables += [_contamination_table(gaps)] if gaps else []
    return ReportContent(
        overview=overview,
        summary=summary,
        agents=agents,
        yardstick=yardstick,
        grids=grids,
        error_modes=error_modes,
        anytime=anytime,
        judge_scores=judge_scores,
        ranking=ranked,
        gaps=gaps,
        memory=compare_memory(runs),
        entries=entries,
        tables=tables,
        figures=figures,
    )


def _cells_table(summary: Summary) -> DataTable:
    title = "All metrics of every task and agent; rows with an empty task are means over tasks"
    rows = [dict(_flatten(cell.model_dump(mode="json"))) for cell in (*summary.cells, *summary.overall)]
    return DataTable("cells", title, rows)


def _category_table(summary: Summary) -> DataTable:
    rows = [
        {"category": category, **dict(_flatten(cell.model_dump(mode="json", exclude={"task"})))}
        for category, cells in summary.by_category.items()
        for cell in cells
    ]
    return DataTable("categories", "All metrics by category of task: means over its tasks", rows)


def _contamination_table(gaps: Sequence[ContaminationGap]) -> DataTable:
    title = "Improvement on public data and on hidden data; rows with an empty task are means over tasks"
    return DataTable("contamination", title, [gap.model_dump(mode="json") for gap in gaps])


def _settings_table(summary: Summary) -> DataTable:
    rows = [dict(_flatten(setting.model_dump(mode="json"))) for setting in summary.settings]
    return DataTable("settings", "Settings of the runs of each task", rows)


def _flatten(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield columns and values; the fields of a nested record become columns of their own."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name} ")
        elif isinstance(value, list):
            yield f"{prefix}{name}", "; ".join(map(str, value))
        else:
            yield f"{prefix}{name}", value
