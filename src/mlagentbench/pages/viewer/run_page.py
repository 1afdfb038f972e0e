"""The page of one run: one file that opens from disk, or follows the run where a server gives it."""

from collections.abc import Sequence
from pathlib import Path

from mlagentbench.analysis.anytime import StepGrade
from mlagentbench.analysis.runs import Run
from mlagentbench.grading.verdict import relative_improvement
from mlagentbench.pages.layout.render import render_page
from mlagentbench.pages.viewer.access_views import count_outside_accesses
from mlagentbench.pages.viewer.run_header import build_header
from mlagentbench.pages.viewer.run_index import RunRow
from mlagentbench.pages.viewer.step_views import classify_steps, view_steps
from mlagentbench.pages.viewer.timeline import build_timeline
from mlagentbench.process.findings import Finding
from mlagentbench.process.judgements import read_judgements
from mlagentbench.system.lock import is_locked

LIVE_CSP_RULES = {"connect-src": "'self'"}


def write_run_page(
    run: Run,
    target: Path,
    index_link: str = "",
    findings: Sequence[Finding] = (),
    grades: Sequence[StepGrade] = (),
) -> None:
    """Write the page of a run, whole or not at all; `home` is where the site's index lies, seen from there."""
    partial = target.with_name(f".{target.name}.part")
    partial.write_text(render_run_page(run, index_link, findings, grades), encoding="utf-8")
    partial.replace(target)


def render_run_list(root: str, rows: Sequence[RunRow]) -> str:
    """The list of runs that a server gives."""
    return render_page(
        "viewer/runs.html", scripts=["viewer/runs.js"], csp_rules=LIVE_CSP_RULES, root=root, rows=rows
    )


def render_run_page(
    run: Run,
    index_link: str = "",
    findings: Sequence[Finding] = (),
    grades: Sequence[StepGrade] = (),
    stamp: str = "",
    after: int = 0,
) -> str:
    """The page as text; with a stamp it follows the run, and with `after` it has only the steps after that one."""
    going = run.result is None and is_locked(run.folder.path / "run.lock")
    kinds = classify_steps(run)
    steps, beyond = view_steps(run, kinds, findings, grades, after)
    return render_page(
        "viewer/run.html",
        styles=["viewer/run.css"],
        scripts=["viewer/run.js", "viewer/search.js", *(["viewer/follow.js"] if stamp else [])],
        csp_rules=LIVE_CSP_RULES if stamp else {},
        run=run,
        home=index_link,
        head=build_header(run, going),
        judged=read_judgements(run),
        strayed=count_outside_accesses(run),
        going=going,
        stamp=stamp,
        findings=findings,
        steps=steps,
        beyond=beyond,
        gain=lambda score: (
            relative_improvement(score, run.spec.baseline, run.spec.better) if run.spec.baseline else None
        ),
        timeline=build_timeline(run, kinds, findings, grades),
    )
