"""The list of runs: every one of them, also those that count for nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import label_runs
from mlagentbench.pages.site.run_digest import RunDigest
from mlagentbench.pages.site.tables import DataTable


@dataclass(frozen=True)
class RunEntry:
    """One row."""

    run: Run
    task: str
    page: str
    agent: str
    finding_kinds: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """In a word or two."""
        result = self.run.result
        if result is None:
            return "unfinished"
        if self.run.is_fault:
            return "fault"
        if not result.valid:
            return "invalid"
        if result.baseline is None:
            return "not judged"
        return "success" if result.success else "may be noise" if result.improved else "no success"

    @property
    def badge_class(self) -> str:
        """The colour of the verdict."""
        tones = {
            "success": "good",
            "fault": "bad",
            "invalid": "warn",
            "unfinished": "warn",
            "may be noise": "accent",
        }
        return tones.get(self.verdict, "")


def build_entries(runs: Sequence[Run], pages: Sequence[str], seen: Sequence[RunDigest]) -> list[RunEntry]:
    """All runs in their order."""
    return [
        RunEntry(run, task, page, run.agent_label, found.finding_kinds)
        for run, task, page, found in zip(runs, label_runs(runs), pages, seen, strict=True)
    ]


def runs_table(listed: Sequence[RunEntry]) -> DataTable:
    """For programs."""
    rows = []
    for entry in listed:
        spec, result = entry.run.spec, entry.run.result
        told = (
            result.model_dump(mode="json", exclude={"task", "agent", "model", "hashes", "folder"})
            if result
            else {}
        )
        told = {name: "; ".join(value) if isinstance(value, list) else value for name, value in told.items()}
        head = {
            "run": entry.run.name,
            "page": f"runs/{entry.page}.html",
            "task": entry.task,
            "who": entry.agent,
        }
        about = {
            "edition": spec.edition,
            "data": spec.kind,
            "seed": spec.seed,
            "verdict": entry.verdict,
            "findings": "; ".join(entry.finding_kinds),
        }
        rows.append({**head, **about, "sandbox": spec.sandbox, "version": spec.version, **told})
    return DataTable("runs", "All runs", rows)
