"""Looks at a finished run again: every score and every hash that it claims is computed anew."""

import math
from collections.abc import Iterator

from mlagentbench import discovery
from mlagentbench.agents import base as agents
from mlagentbench.errors import Fault, UsageError
from mlagentbench.grading.grade import Grade, grade
from mlagentbench.records import Record, Result, Step
from mlagentbench.runner.baselines import find_baseline
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.replay import replay
from mlagentbench.runner.run import build_result
from mlagentbench.runner.setup import Setup, find_changed_inputs, restore_setup
from mlagentbench.system.progress import ProgressCallback

# What is not computed again: when it was graded, where it lies, and words.
UNVERIFIED_FIELDS = {"folder", "grading_seconds", "note", "ending"}


class Check(Record):
    """One claim, and whether it holds."""

    what: str
    holds: bool
    detail: str = ""


def verify_run(folder: RunFolder, setup: Setup, trusted: bool = False) -> list[Check]:
    """All claims of a finished run; an agent that came from a file is code, and run again only if it is trusted."""
    folder.refuse_imported("verified")
    result = folder.result
    if result is None:
        raise UsageError(f"{folder.path} is not finished: mlagentbench resume {folder.path}")
    checks = list(_check_inputs(folder, setup))
    problems = folder.open_store(setup.data, writable=False).find_problems()
    checks.append(
        Check(what="every stored file matches its hash", holds=not problems, detail="; ".join(problems[:3]))
    )
    try:
        steps = list(folder.steps())
        checks.append(_check_ending(folder, result, steps))
        checks += _check_result_fields(folder, setup, result, steps)
        if _is_replayable(folder, trusted):
            different = replay(folder, setup)
            what = "the agent, given the recorded replies, comes to the same steps"
            checks.append(Check(what=what, holds=not different, detail=different))
    except Fault as fault:
        checks.append(Check(what="the record can be read and graded", holds=False, detail=str(fault)))
    return checks


def _is_replayable(folder: RunFolder, trusted: bool) -> bool:
    """A person cannot; nor can an outside program, or an agent whose code is not at hand or is somebody else's."""
    if folder.agent_file:
        return trusted
    known = folder.spec.agent in discovery.plugin_names("agents")
    return (
        known
        and not folder.spec.interactive
        and not agents.load_agent_class(folder.spec.agent).restarts_on_resume
    )


def _check_inputs(folder: RunFolder, setup: Setup) -> Iterator[Check]:
    differing = find_changed_inputs(folder.spec, setup)
    for name in ("task", "grader", "data", "runtime"):
        yield Check(what=f"the {name} is the one that the run used", holds=name not in differing)
    try:
        setup.data.verify_unchanged()
        yield Check(what="the data is as it was prepared", holds=True)
    except UsageError as error:
        yield Check(what="the data is as it was prepared", holds=False, detail=str(error))
    known = find_baseline(setup.task, folder.spec.edition, setup.data)
    if known:
        yield _check_equal("the baseline is the one that is known", folder.spec.baseline, known)


def _check_ending(folder: RunFolder, result: Result, steps: list[Step]) -> Check:
    submitted = bool(steps) and steps[-1].call.action == "Final Answer" and not steps[-1].failed
    fits = {
        "submitted": submitted,
        "steps": not submitted and len(steps) == folder.spec.limits.steps,
        "fault": True,
    }
    return Check(
        what="the ending fits the record", holds=fits.get(result.ending, not submitted), detail=result.ending
    )


def _check_result_fields(
    folder: RunFolder, setup: Setup, claimed: Result, steps: list[Step]
) -> Iterator[Check]:
    """Every field of the result, against the same computed again from the record."""
    store = folder.open_store(setup.data, writable=False)
    again = Grade()
    if claimed.ending != "fault":
        again = grade(setup.task, setup.data, store, len(steps), setup.sandbox, steps)
    if _is_close(claimed.score, again.score, setup.task.config.repeatable):
        again = again.replace(score=claimed.score)  # as near as this task's scores repeat themselves
    found = build_result(folder, steps, claimed.ending, again)
    for name in [field for field in Result.model_fields if field not in UNVERIFIED_FIELDS]:
        one, other = getattr(claimed, name), getattr(found, name)
        holds = _is_close(one, other, 1e-9) if isinstance(other, float) else one == other
        yield Check(
            what=f"result.json: {name}", holds=holds, detail="" if holds else f"claimed {one}, found {other}"
        )


def _is_close(one: float | None, other: float | None, tolerance: float) -> bool:
    return one == other or (
        one is not None and other is not None and math.isclose(one, other, rel_tol=tolerance)
    )


def _check_equal(what: str, claimed: object, found: object) -> Check:
    holds = claimed == found
    return Check(what=what, holds=holds, detail="" if holds else f"claimed {claimed}, found {found}")


def regrade(folder: RunFolder, progress: ProgressCallback) -> tuple[int, Grade]:
    """The number of the last step, and what the grader says now of what it left."""
    setup, last = restore_setup(folder.spec, progress), len(folder.steps())
    if differing := find_changed_inputs(folder.spec, setup):
        progress(
            f"note: the {' and '.join(differing)} changed since the run; this is not the score that it would have had"
        )
    return last, grade(
        setup.task, setup.data, folder.open_store(setup.data, writable=False), last, setup.sandbox
    )
