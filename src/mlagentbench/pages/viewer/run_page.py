"""The page of one run: a single file that opens from disk, or follows the run when served."""

from collections.abc import Sequence
from pathlib import Path

from mlagentbench.analysis.anytime import StepGrade
from mlagentbench.analysis.runs import Run
from mlagentbench.grading.verdict import relative_improvement
from mlagentbench.pages.layout.render import render_page
from mlagentbench.pages.viewer.access_views import count_unexpected_accesses
from mlagentbench.pages.viewer.run_header import build_header
from mlagentbench.pages.viewer.run_index import RunRow
from mlagentbench.pages.viewer.running_output import read_running_output
from mlagentbench.pages.viewer.step_views import classify_steps, view_steps
from mlagentbench.pages.viewer.timeline import build_timeline
from mlagentbench.process.findings import Finding
from mlagentbench.process.judgements import read_judgements
from mlagentbench.system.atomic_write import write_atomic
from mlagentbench.system.lock import is_locked

LIVE_CSP_RULES = {"connect-src": "'self'"}


def write_run_page(
    run: Run,
    target: Path,
    index_link: str = "",
    findings: Sequence[Finding] = (),
    grades: Sequence[StepGrade] = (),
) -> None:
    """Write the page of a run atomically; `index_link` is the relative address of the report's index page."""
    write_atomic(target, render_run_page(run, index_link, findings, grades))


def render_run_list(root: str, rows: Sequence[RunRow]) -> str:
    """The list of runs, as the server sends it."""
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
    """Render the page; with a stamp it follows the run, and it contains only the steps after `after`."""
    is_running = run.result is None and is_locked(run.folder.path / "run.lock")
    baseline = run.spec.baseline
    kinds = classify_steps(run)
    steps, pending_calls = view_steps(run, kinds, findings, grades, after)
    return render_page(
        "viewer/run.html",
        styles=["viewer/run.css"],
        scripts=["viewer/run.js", "viewer/search.js", *(["viewer/follow.js"] if stamp else [])],
        csp_rules=LIVE_CSP_RULES if stamp else {},
        run=run,
        index_link=index_link,
        header=build_header(run, is_running),
        judgements=read_judgements(run),
        unexpected=count_unexpected_accesses(run),
        is_running=is_running,
        stamp=stamp,
        findings=findings,
        steps=steps,
        running_output=read_running_output(run.folder.path) if is_running else "",
        pending_calls=pending_calls,
        improvement_of=lambda score: (
            relative_improvement(score, baseline, run.spec.better) if baseline else None
        ),
        timeline=build_timeline(run, kinds, findings, grades),
    )
