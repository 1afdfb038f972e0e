"""One run as the report needs it, beside its page: read once, in a process of its own where there are many."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import mlagentbench
from mlagentbench.analysis.anytime import build_curve, read_step_grades
from mlagentbench.analysis.runs import Run
from mlagentbench.errors import Fault
from mlagentbench.grading.verdict import compute_verdict
from mlagentbench.pages.layout.render import render_page as whole
from mlagentbench.pages.site.files import write_if_changed
from mlagentbench.pages.viewer.run_page import write_run_page
from mlagentbench.process.findings import collect_findings
from mlagentbench.records import Record
from mlagentbench.runner.folder import RunFolder

INDEX_LINK = "../index.html"  # seen from the page of a run
SOURCE_FILES = ("run.json", "trace.jsonl", "model_calls.jsonl", "result.json", "grades.jsonl", "judged.json")


class GradedStep(Record):
    """A graded step: when, how much better than the starter its state was, and whether that is beyond noise, too."""

    step: int
    seconds: float
    improvement: float | None
    success: bool


class RunDigest(Record):
    """What was found in a run; `of` is the state of its files at that time."""

    fingerprint: str
    finding_kinds: tuple[str, ...] = ()
    graded_steps: tuple[GradedStep, ...] = ()


def fingerprint_run(path: Path) -> str:
    """Changes whenever a file of the run changes, or whatever makes pages."""
    told = [_fingerprint_sources()]
    for name in SOURCE_FILES:
        file = path / name
        if file.is_file():
            told.append(f"{name} {file.stat().st_size} {file.stat().st_mtime_ns}")
    return hashlib.blake2b("\n".join(told).encode(), digest_size=12).hexdigest()


@cache
def _fingerprint_sources() -> str:
    """All of reports/, by size and time: whoever works on it sees the new pages."""
    files = sorted(
        path for path in Path(__file__).parents[1].rglob("*") if path.suffix != ".pyc" and path.is_file()
    )
    return f"{mlagentbench.__version__} " + " ".join(
        f"{f.stat().st_size}:{f.stat().st_mtime_ns}" for f in files
    )


def digest_run(path: Path, page: Path) -> RunDigest:
    """Read a run, write its page, and keep what the tables need; a damaged record is a finding, not the end."""
    folder = RunFolder(path)
    run, of = Run(folder, folder.result), fingerprint_run(path)
    found = collect_findings(run)
    try:
        grades, moments = read_step_grades(run), _graded_steps(run)
    except Fault:
        grades, moments = (), ()
    try:
        write_run_page(run, page, index_link=INDEX_LINK, findings=found, grades=grades)
    except Fault as fault:
        write_if_changed(page, whole("site/damaged.html", home=INDEX_LINK, run=run, why=str(fault)).encode())
    return RunDigest(
        fingerprint=of,
        finding_kinds=tuple(dict.fromkeys(finding.kind for finding in found)),
        graded_steps=moments,
    )


def _graded_steps(run: Run) -> tuple[GradedStep, ...]:
    spec = run.spec

    def success(score: float | None) -> bool:
        return (
            score is not None
            and spec.baseline is not None
            and compute_verdict(score, spec.baseline, spec.better).success
        )

    return tuple(
        GradedStep(step=p.step, seconds=p.seconds, improvement=p.improvement, success=success(p.score))
        for p in build_curve(run)
    )


def digest_runs(jobs: Sequence[tuple[Path, Path]]) -> list[RunDigest]:
    """Several, one after another: a process does not pay for each."""
    return [digest_run(path, page) for path, page in jobs]
