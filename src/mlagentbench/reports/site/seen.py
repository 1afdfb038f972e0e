"""One run as the report needs it, beside its page: read once, in a process of its own where there are many."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import mlagentbench
from mlagentbench.errors import Fault
from mlagentbench.grading.verdict import judge
from mlagentbench.records import Record
from mlagentbench.reports.anytime import curve, step_grades
from mlagentbench.reports.look.look import page as whole
from mlagentbench.reports.process.findings import findings
from mlagentbench.reports.runs import Run
from mlagentbench.reports.site.files import keep
from mlagentbench.reports.viewer.pages import write_run
from mlagentbench.runner.folder import RunFolder

HOME = "../index.html"  # seen from the page of a run
SOURCES = ("run.json", "trace.jsonl", "model_calls.jsonl", "result.json", "grades.jsonl", "judged.json")


class Moment(Record):
    """A graded step: when, how much better than the starter its state was, and whether that is beyond noise, too."""

    step: int
    seconds: float
    improvement: float | None
    success: bool


class Seen(Record):
    """What was found in a run; `of` is the state of its files at that time."""

    of: str
    kinds: tuple[str, ...] = ()
    moments: tuple[Moment, ...] = ()


def state(path: Path) -> str:
    """Changes whenever a file of the run changes, or whatever makes pages."""
    told = [_makers()]
    for name in SOURCES:
        file = path / name
        if file.is_file():
            told.append(f"{name} {file.stat().st_size} {file.stat().st_mtime_ns}")
    return hashlib.blake2b("\n".join(told).encode(), digest_size=12).hexdigest()


@cache
def _makers() -> str:
    """All of reports/, by size and time: whoever works on it sees the new pages."""
    files = sorted(path for path in Path(__file__).parents[1].rglob("*") if path.suffix != ".pyc" and path.is_file())
    return f"{mlagentbench.__version__} " + " ".join(f"{f.stat().st_size}:{f.stat().st_mtime_ns}" for f in files)


def look(path: Path, page: Path) -> Seen:
    """Read a run, write its page, and keep what the tables need; a damaged record is a finding, not the end."""
    folder = RunFolder(path)
    run, of = Run(folder, folder.result), state(path)
    found = findings(run)
    try:
        grades, moments = step_grades(run), _moments(run)
    except Fault:
        grades, moments = (), ()
    try:
        write_run(run, page, home=HOME, findings=found, grades=grades)
    except Fault as fault:
        keep(page, whole("site/damaged.html", home=HOME, run=run, why=str(fault)).encode())
    return Seen(of=of, kinds=tuple(dict.fromkeys(finding.kind for finding in found)), moments=moments)


def _moments(run: Run) -> tuple[Moment, ...]:
    spec = run.spec

    def success(score: float | None) -> bool:
        return score is not None and spec.baseline is not None and judge(score, spec.baseline, spec.better).success

    return tuple(
        Moment(step=p.step, seconds=p.seconds, improvement=p.improvement, success=success(p.score)) for p in curve(run)
    )


def look_at(jobs: Sequence[tuple[Path, Path]]) -> list[Seen]:
    """Several, one after another: a process does not pay for each."""
    return [look(path, page) for path, page in jobs]
