"""Looks at a finished run again: every score and every hash that it claims is computed anew."""

import math
from collections.abc import Iterator

from mlagentbench import discovery
from mlagentbench.agents import base as agents
from mlagentbench.errors import Fault, UsageError
from mlagentbench.grading.grade import Grade, grade
from mlagentbench.preparation.download import Say
from mlagentbench.records import Record, Result, Step
from mlagentbench.runner.baselines import baseline_of
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.replay import replay
from mlagentbench.runner.run import account
from mlagentbench.runner.setup import Setup, changed, set_up_again

# What is not computed again: when it was graded, where it lies, and words.
UNCLAIMED = {"folder", "grading_seconds", "note", "ending"}


class Check(Record):
    """One claim, and whether it holds."""

    what: str
    holds: bool
    detail: str = ""


def verify(folder: RunFolder, setup: Setup, trusted: bool = False) -> list[Check]:
    """All claims of a finished run; an agent that came from a file is code, and run again only if it is trusted."""
    folder.require_own("verified")
    result = folder.result
    if result is None:
        raise UsageError(f"{folder.path} is not finished: mlagentbench resume {folder.path}")
    checks = list(_surroundings(folder, setup))
    problems = folder.store(setup.data, writable=False).check()
    checks.append(Check(what="every stored file matches its hash", holds=not problems, detail="; ".join(problems[:3])))
    try:
        steps = list(folder.steps())
        checks.append(_ending(folder, result, steps))
        checks += _claims(folder, setup, result, steps)
        if _can_be_replayed(folder, trusted):
            different = replay(folder, setup)
            what = "the agent, given the recorded replies, comes to the same steps"
            checks.append(Check(what=what, holds=not different, detail=different))
    except Fault as fault:
        checks.append(Check(what="the record can be read and graded", holds=False, detail=str(fault)))
    return checks


def _can_be_replayed(folder: RunFolder, trusted: bool) -> bool:
    """A person cannot; nor can an outside program, or an agent whose code is not at hand or is somebody else's."""
    if folder.agent_file:
        return trusted
    known = folder.spec.agent in discovery.names("agents")
    return known and not folder.spec.interactive and not agents.load(folder.spec.agent).begins_again


def _surroundings(folder: RunFolder, setup: Setup) -> Iterator[Check]:
    differing = changed(folder.spec, setup)
    for name in ("task", "grader", "data", "runtime"):
        yield Check(what=f"the {name} is the one that the run used", holds=name not in differing)
    try:
        setup.data.check()
        yield Check(what="the data is as it was prepared", holds=True)
    except UsageError as error:
        yield Check(what="the data is as it was prepared", holds=False, detail=str(error))
    known = baseline_of(setup.task, folder.spec.edition, setup.data)
    if known:
        yield _equal("the baseline is the one that is known", folder.spec.baseline, known)


def _ending(folder: RunFolder, result: Result, steps: list[Step]) -> Check:
    submitted = bool(steps) and steps[-1].call.action == "Final Answer" and not steps[-1].failed
    fits = {"submitted": submitted, "steps": not submitted and len(steps) == folder.spec.limits.steps, "fault": True}
    return Check(what="the ending fits the record", holds=fits.get(result.ending, not submitted), detail=result.ending)


def _claims(folder: RunFolder, setup: Setup, claimed: Result, steps: list[Step]) -> Iterator[Check]:
    """Every field of the result, against the same computed again from the record."""
    store = folder.store(setup.data, writable=False)
    again = Grade()
    if claimed.ending != "fault":
        again = grade(setup.task, setup.data, store, len(steps), setup.sandbox, steps)
    if _close(claimed.score, again.score, setup.task.config.repeatable):
        again = again.but(score=claimed.score)  # as near as this task's scores repeat themselves
    found = account(folder, steps, claimed.ending, again)
    for name in [field for field in Result.model_fields if field not in UNCLAIMED]:
        one, other = getattr(claimed, name), getattr(found, name)
        holds = _close(one, other, 1e-9) if isinstance(other, float) else one == other
        yield Check(what=f"result.json: {name}", holds=holds, detail="" if holds else f"claimed {one}, found {other}")


def _close(one: float | None, other: float | None, tolerance: float) -> bool:
    return one == other or (one is not None and other is not None and math.isclose(one, other, rel_tol=tolerance))


def _equal(what: str, claimed: object, found: object) -> Check:
    holds = claimed == found
    return Check(what=what, holds=holds, detail="" if holds else f"claimed {claimed}, found {found}")


def grade_again(folder: RunFolder, say: Say) -> tuple[int, Grade]:
    """The number of the last step, and what the grader says now of what it left."""
    setup, last = set_up_again(folder.spec, say), len(folder.steps())
    if differing := changed(folder.spec, setup):
        say(f"note: the {' and '.join(differing)} changed since the run; this is not the score that it would have had")
    return last, grade(setup.task, setup.data, folder.store(setup.data, writable=False), last, setup.sandbox)
