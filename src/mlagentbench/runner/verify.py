"""Looks at a finished run again: every score and every hash that it claims is computed anew."""

import math
from collections.abc import Iterator

from mlagentbench.errors import Fault, UsageError
from mlagentbench.grading.grade import Grade, grade
from mlagentbench.grading.verdict import judge
from mlagentbench.records import Record
from mlagentbench.runner.baselines import baseline_of
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup, changed


class Check(Record):
    """One claim, and whether it holds."""

    what: str
    holds: bool
    detail: str = ""


def verify(folder: RunFolder, setup: Setup) -> list[Check]:
    """All claims of a finished run."""
    result = folder.result
    if result is None:
        raise UsageError(f"{folder.path} is not finished: mlagentbench resume {folder.path}")
    steps = folder.steps()
    differing = changed(folder.spec, setup)
    checks = [
        Check(what=f"the {name} is the one that the run used", holds=name not in differing)
        for name in ("task", "grader", "data", "runtime")
    ]
    problems = folder.store(setup.data, writable=False).check()
    checks.append(Check(what="every stored file matches its hash", holds=not problems, detail="; ".join(problems[:3])))
    checks.append(_equal("the number of steps is as claimed", result.steps, len(steps)))
    claims = folder.claims(len(steps))
    checks.append(_equal("the trace is as claimed", result.trace, claims["trace"]))
    checks.append(_equal("the last snapshot is as claimed", result.snapshot, claims["snapshot"]))
    if result.ending != "fault" and not problems:
        again = grade(setup.task, setup.data, folder.store(setup.data, writable=False), len(steps), folder.spec.sandbox)
        checks += _scores(folder, setup, again)
    return checks


def _scores(folder: RunFolder, setup: Setup, again: Grade) -> Iterator[Check]:
    result = folder.result
    assert result is not None
    claimed, tolerance = result.score, setup.task.config.repeatable
    close = claimed == again.score or (
        claimed is not None and again.score is not None and math.isclose(claimed, again.score, rel_tol=tolerance)
    )
    yield Check(what="the score is as claimed", holds=close, detail=f"claimed {claimed}, now {again.score}")
    baseline = baseline_of(setup.task, folder.spec.edition, setup.data)
    if baseline is not None and claimed is not None and again.score is not None:
        now = judge(claimed, baseline, setup.task.config.better)
        yield _equal("the verdict follows from the score", result.success, now.success)
        fits = result.improvement is not None and math.isclose(result.improvement, now.improvement, rel_tol=1e-9)
        yield Check(what="the improvement follows from the score", holds=fits, detail=f"now {now.improvement}")
    yield _equal("the violations are as claimed", sorted(result.violations), sorted(again.violations))


def _equal(what: str, claimed: object, found: object) -> Check:
    return Check(
        what=what,
        holds=claimed == found,
        detail="" if claimed == found else f"claimed {claimed}, found {found}",
    )


def curve(folder: RunFolder, setup: Setup, every_step: bool) -> Iterator[tuple[int, Grade]]:
    """The grade after the last step, or after every one; a submission that did not change is not graded again."""
    store = folder.store(setup.data, writable=False)
    seen: dict[str, Grade] = {}
    last = len(folder.steps())
    for step in range(0 if every_step else last, last + 1):
        state = store.state(step)
        wanted = setup.task.config.submission
        key = store.tree_hash(step) if wanted == "." else str(state.get(wanted))
        if key not in seen:
            try:
                seen[key] = grade(setup.task, setup.data, store, step, folder.spec.sandbox)
            except Fault as fault:
                raise Fault(f"step {step}: {fault}") from fault
        yield step, seen[key]
