"""The list of all runs, including those that are excluded from every rate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import label_runs
from mlagentbench.pages.site.run_digest import RunDigest
from mlagentbench.pages.site.tables import DataTable

BADGE_CLASSES = {
    "success": "good",
    "fault": "bad",
    "invalid": "warn",
    "unfinished": "warn",
    "within noise": "accent",
}


@dataclass(frozen=True)
class RunEntry:
    """One row of the list."""

    run: Run
    task: str
    page: str
    agent: str
    finding_kinds: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The verdict in one to three words."""
        result = self.run.result
        if result is None:
            return "unfinished"
        if self.run.is_fault:
            return "fault"
        if not result.valid:
            return "invalid"
        if result.baseline is None:
            return "no baseline"
        return "success" if result.success else "within noise" if result.improved else "no success"

    @property
    def badge_class(self) -> str:
        """The CSS class of the verdict."""
        return BADGE_CLASSES.get(self.verdict, "")


def build_entries(runs: Sequence[Run], pages: Sequence[str], digests: Sequence[RunDigest]) -> list[RunEntry]:
    """One entry per run, in the order of the runs."""
    return [
        RunEntry(run, task, page, run.agent_label, digest.finding_kinds)
        for run, task, page, digest in zip(runs, label_runs(runs), pages, digests, strict=True)
    ]


def runs_table(entries: Sequence[RunEntry]) -> DataTable:
    """All runs with the fields of their results."""
    return DataTable("runs", "All runs", [_run_row(entry) for entry in entries])


def _run_row(entry: RunEntry) -> dict[str, Any]:
    spec, result = entry.run.spec, entry.run.result
    excluded = {"task", "agent", "model", "hashes", "folder"}
    fields = result.model_dump(mode="json", exclude=excluded) if result else {}
    return {
        "run": entry.run.name,
        "page": f"runs/{entry.page}.html",
        "task": entry.task,
        "agent": entry.agent,
        "edition": spec.edition,
        "data": spec.kind,
        "seed": spec.seed,
        "verdict": entry.verdict,
        "findings": "; ".join(entry.finding_kinds),
        "sandbox": spec.sandbox,
        "version": spec.version,
        **{name: "; ".join(value) if isinstance(value, list) else value for name, value in fields.items()},
    }
