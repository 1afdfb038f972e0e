"""The list of runs: every one of them, also those that count for nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlagentbench.reports.runs import Run
from mlagentbench.reports.settings import labels
from mlagentbench.reports.site.seen import Seen
from mlagentbench.reports.site.tables import Table


@dataclass(frozen=True)
class Entry:
    """One row."""

    run: Run
    task: str
    page: str
    who: str
    kinds: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """In a word or two."""
        result = self.run.result
        if result is None:
            return "unfinished"
        if self.run.fault:
            return "fault"
        if not result.valid:
            return "invalid"
        if result.baseline is None:
            return "not judged"
        return "success" if result.success else "may be noise" if result.improved else "no success"

    @property
    def tone(self) -> str:
        """The colour of the verdict."""
        tones = {"success": "good", "fault": "bad", "invalid": "warn", "unfinished": "warn", "may be noise": "accent"}
        return tones.get(self.verdict, "")


def entries(runs: Sequence[Run], pages: Sequence[str], seen: Sequence[Seen]) -> list[Entry]:
    """All runs in their order."""
    return [
        Entry(run, task, page, run.who, found.kinds)
        for run, task, page, found in zip(runs, labels(runs), pages, seen, strict=True)
    ]


def table(listed: Sequence[Entry]) -> Table:
    """For programs."""
    rows = []
    for entry in listed:
        spec, result = entry.run.spec, entry.run.result
        told = result.model_dump(mode="json", exclude={"task", "agent", "model", "hashes", "folder"}) if result else {}
        told = {name: "; ".join(value) if isinstance(value, list) else value for name, value in told.items()}
        head = {"run": entry.run.name, "page": f"runs/{entry.page}.html", "task": entry.task, "who": entry.who}
        about = {
            "edition": spec.edition,
            "data": spec.kind,
            "seed": spec.seed,
            "verdict": entry.verdict,
            "findings": "; ".join(entry.kinds),
        }
        rows.append({**head, **about, "sandbox": spec.sandbox, "version": spec.version, **told})
    return Table("runs", "All runs", rows)
