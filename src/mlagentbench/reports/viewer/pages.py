"""The page of one run: one file that opens from disk, or follows the run where a server gives it."""

from collections.abc import Sequence
from pathlib import Path

from mlagentbench.grading.verdict import improvement
from mlagentbench.locks import held
from mlagentbench.reports.anytime import StepGrade
from mlagentbench.reports.look.look import page
from mlagentbench.reports.process.findings import Finding
from mlagentbench.reports.process.judge import judgement_of
from mlagentbench.reports.runs import Run
from mlagentbench.reports.viewer.accessed import strayed
from mlagentbench.reports.viewer.head import head
from mlagentbench.reports.viewer.shelf import Row
from mlagentbench.reports.viewer.steps import kinds_of, shown_steps
from mlagentbench.reports.viewer.timeline import timeline

LIVE = {"connect-src": "'self'"}


def write_run(
    run: Run, target: Path, home: str = "", findings: Sequence[Finding] = (), grades: Sequence[StepGrade] = ()
) -> None:
    """Write the page of a run, whole or not at all; `home` is where the site's index lies, seen from there."""
    partial = target.with_name(f".{target.name}.part")
    partial.write_text(run_page(run, home, findings, grades), encoding="utf-8")
    partial.replace(target)


def runs_page(root: str, rows: Sequence[Row]) -> str:
    """The list of runs that a server gives."""
    return page("viewer/runs.html", scripts=["viewer/runs.js"], allow=LIVE, root=root, rows=rows)


def run_page(
    run: Run,
    home: str = "",
    findings: Sequence[Finding] = (),
    grades: Sequence[StepGrade] = (),
    stamp: str = "",
    after: int = 0,
) -> str:
    """The page as text; with a stamp it follows the run, and with `after` it has only the steps after that one."""
    going = run.result is None and held(run.folder.path / "run.lock")
    kinds = kinds_of(run)
    steps, beyond = shown_steps(run, kinds, findings, grades, after)
    return page(
        "viewer/run.html",
        styles=["viewer/run.css"],
        scripts=["viewer/run.js", "viewer/search.js", *(["viewer/follow.js"] if stamp else [])],
        allow=LIVE if stamp else {},
        run=run,
        home=home,
        head=head(run, going),
        judged=judgement_of(run),
        strayed=strayed(run),
        going=going,
        stamp=stamp,
        findings=findings,
        steps=steps,
        beyond=beyond,
        gain=lambda score: improvement(score, run.spec.baseline, run.spec.better) if run.spec.baseline else None,
        timeline=timeline(run, kinds, findings, grades),
    )
