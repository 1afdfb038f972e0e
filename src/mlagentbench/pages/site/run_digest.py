"""What the report needs from one run. Each run is read once, for its digest and its page together."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import mlagentbench
from mlagentbench.analysis.anytime import StepGrade, build_curve, read_step_grades
from mlagentbench.analysis.runs import Run
from mlagentbench.errors import Fault
from mlagentbench.grading.verdict import judge_score
from mlagentbench.pages.layout.render import render_page
from mlagentbench.pages.site.files import write_if_changed
from mlagentbench.pages.viewer.run_index import RUN_FILES
from mlagentbench.pages.viewer.run_page import write_run_page
from mlagentbench.process.findings import collect_findings
from mlagentbench.records import Record
from mlagentbench.runner.folder import RunFolder

INDEX_LINK = "../index.html"  # relative to the page of a run
SOURCE_PACKAGES = ("analysis", "process", "pages")


class GradedStep(Record):
    """A graded step: its time, its improvement and progress, and whether it is a success beyond noise."""

    step: int
    seconds: float
    improvement: float | None
    success: bool
    progress: float | None = None


class RunDigest(Record):
    """The findings and graded steps of a run; `fingerprint` identifies the state of its files."""

    fingerprint: str
    finding_kinds: tuple[str, ...] = ()
    graded_steps: tuple[GradedStep, ...] = ()


def fingerprint_run(path: Path) -> str:
    """A hash that changes whenever a file of the run or the code that renders its page changes."""
    parts = [_fingerprint_sources()]
    for name in RUN_FILES:
        file = path / name
        if file.is_file():
            parts.append(f"{name} {file.stat().st_size} {file.stat().st_mtime_ns}")
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


@cache
def _fingerprint_sources() -> str:
    """Size and time of all files that pages depend on, so that a code change rebuilds them."""
    root = Path(mlagentbench.__file__).parent
    files = [path for package in SOURCE_PACKAGES for path in sorted((root / package).rglob("*"))]
    stats = [path.stat() for path in files if path.suffix != ".pyc" and path.is_file()]
    return " ".join([mlagentbench.__version__, *(f"{stat.st_size}:{stat.st_mtime_ns}" for stat in stats)])


def digest_run(path: Path, page: Path) -> RunDigest:
    """Read a run, write its page and return its digest; a damaged record becomes a finding, not an error."""
    folder = RunFolder(path)
    run, fingerprint = Run(folder, folder.result), fingerprint_run(path)
    findings = collect_findings(run)
    try:
        grades = read_step_grades(run)
        graded_steps = _graded_steps(run, grades)
    except Fault:
        grades, graded_steps = (), ()
    try:
        write_run_page(run, page, index_link=INDEX_LINK, findings=findings, grades=grades)
    except Fault as fault:
        html = render_page("site/damaged.html", index_link=INDEX_LINK, run=run, reason=str(fault))
        write_if_changed(page, html.encode())
    kinds = tuple(dict.fromkeys(finding.kind for finding in findings))
    return RunDigest(fingerprint=fingerprint, finding_kinds=kinds, graded_steps=graded_steps)


def _graded_steps(run: Run, grades: Sequence[StepGrade]) -> tuple[GradedStep, ...]:
    spec = run.spec

    def is_success(score: float | None) -> bool:
        verdict = judge_score(score, spec) if score is not None else None
        return bool(verdict and verdict.success)

    return tuple(
        GradedStep(
            step=point.step,
            seconds=point.seconds,
            improvement=point.improvement,
            success=is_success(point.score),
            progress=point.progress,
        )
        for point in build_curve(run, grades)
    )


def digest_runs(jobs: Sequence[tuple[Path, Path]]) -> list[RunDigest]:
    """Digest several runs in one call, to save the overhead of one call per run between processes."""
    return [digest_run(path, page) for path, page in jobs]
