"""Verifies a finished run: recomputes its score, its hashes and every other claim of result.json."""

import math
from collections.abc import Iterator

from mlagentbench import __version__, discovery
from mlagentbench.agents import base as agents
from mlagentbench.errors import Fault, UsageError
from mlagentbench.formatting import to_single_line
from mlagentbench.grading.grade import grade
from mlagentbench.grading.run_grader import Grade
from mlagentbench.records import Levels, Record, Result, Step
from mlagentbench.runner.baselines import find_levels
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.replay import replay
from mlagentbench.runner.run import build_result
from mlagentbench.runner.setup import Setup, find_changed_inputs, restore_setup
from mlagentbench.system.progress import ProgressCallback

# These do not follow from the record: a path, a duration and free text. The ending has a check of its own.
UNVERIFIED_FIELDS = {"folder", "grading_seconds", "note", "ending"}


class Check(Record):
    """One claim, and whether it holds."""

    what: str
    holds: bool
    detail: str = ""


def verify_run(folder: RunFolder, setup: Setup, trusted: bool = False) -> list[Check]:
    """Check every claim of a finished run.

    For a run of another version of this program, the texts of task, grader and agents may have changed. Its
    score is recomputed with the current ones, wording is not compared, and built-in agents are not replayed.

    Args:
        folder: The run folder.
        setup: The task, its data, the runtime and the sandbox as they are now.
        trusted: Replay the agent even if it comes from a file of the run folder, which executes its code.

    Raises:
        UsageError: The run is not finished, or it was imported.
    """
    folder.refuse_imported("verified")
    result = folder.result
    if result is None:
        raise UsageError(f"{folder.path} is not finished. To continue it: mlagentbench resume {folder.path}")
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
            divergence = replay(folder, setup)
            what = "the agent takes the same steps when the record is replayed"
            checks.append(Check(what=what, holds=not divergence, detail=divergence))
    except Fault as fault:
        checks.append(Check(what="the record can be read and graded", holds=False, detail=str(fault)))
    return checks


def _is_replayable(folder: RunFolder, trusted: bool) -> bool:
    """Whether the agent can be run again: not a person, an outside program, or code that is not trusted."""
    if folder.agent_file:
        return trusted
    if folder.spec.interactive or folder.spec.agent not in discovery.plugin_names("agents"):
        return False
    if _is_other_version(folder):
        return False
    return not agents.load_agent_class(folder.spec.agent).restarts_on_resume


def _is_other_version(folder: RunFolder) -> bool:
    """Whether another version of this program made the run, with other texts of prompts and messages."""
    return folder.spec.version != __version__


def _check_inputs(folder: RunFolder, setup: Setup) -> Iterator[Check]:
    changed = find_changed_inputs(folder.spec, setup)
    for name in ("task", "grader", "data", "runtime"):
        detail = ""
        if name in changed and name in ("task", "grader") and _is_other_version(folder):
            version = to_single_line(folder.spec.version, 40)
            detail = f"changed since version {version}; recomputed with the current one"
        yield Check(
            what=f"the {name} is the one that the run used",
            holds=name not in changed or bool(detail),
            detail=detail,
        )
    try:
        setup.data.verify_unchanged()
        yield Check(what="the prepared data is unchanged", holds=True)
    except UsageError as error:
        yield Check(what="the prepared data is unchanged", holds=False, detail=str(error))
    yield from _check_levels(folder, find_levels(setup.task, folder.spec.edition, setup.data))


def _check_levels(folder: RunFolder, known: Levels) -> Iterator[Check]:
    """Compare the baseline and the levels of the run with those that are known now."""
    spec = folder.spec
    checks = []
    if current := known.solution(spec.start):
        checks.append(_check_equal("the baseline is the known one", spec.baseline, current))
    if spec.levels != Levels():
        current_levels = known.model_dump(exclude_none=True)
        recorded = {name: spec.levels.model_dump()[name] for name in current_levels}
        checks.append(_check_equal("the levels are the known ones", recorded, current_levels))
    for check in checks:
        if not check.holds and _is_other_version(folder):
            version = to_single_line(spec.version, 40)
            yield check.replace(holds=True, detail=f"measured again since version {version}")
        else:
            yield check


def _check_ending(folder: RunFolder, result: Result, steps: list[Step]) -> Check:
    submitted = bool(steps) and steps[-1].call.action == "Final Answer" and not steps[-1].failed
    expected = {
        "submitted": submitted,
        "steps": not submitted and len(steps) == folder.spec.limits.steps,
        "fault": True,
    }
    holds = expected.get(result.ending, not submitted)
    return Check(what="the ending matches the recorded steps", holds=holds, detail=result.ending)


def _check_result_fields(
    folder: RunFolder, setup: Setup, claimed: Result, steps: list[Step]
) -> Iterator[Check]:
    """Compare every field of the result with the value recomputed from the record."""
    store = folder.open_store(setup.data, writable=False)
    grading = Grade()
    if claimed.ending != "fault":
        grading = grade(setup.task, setup.data, store, len(steps), setup.sandbox, steps)
    # Scores of some tasks repeat only within a tolerance. Within it, the claimed score is taken as correct.
    if _is_close(claimed.score, grading.score, setup.task.config.repeatable):
        grading = grading.replace(score=claimed.score)
    recomputed = build_result(folder, steps, claimed.ending, grading)
    for name in [field for field in Result.model_fields if field not in UNVERIFIED_FIELDS]:
        expected, actual = getattr(claimed, name), getattr(recomputed, name)
        if name == "violations" and _is_other_version(folder):
            expected, actual = len(claimed.violations), len(recomputed.violations)
        tolerance = 1e-9 if isinstance(actual, float) else None
        yield _check_equal(f"result.json: {name}", expected, actual, tolerance)


def _is_close(one: float | None, other: float | None, tolerance: float) -> bool:
    if one is None or other is None:
        return one == other
    return one == other or math.isclose(one, other, rel_tol=tolerance)


def _check_equal(what: str, claimed: object, recomputed: object, tolerance: float | None = None) -> Check:
    holds = claimed == recomputed
    if tolerance is not None and isinstance(claimed, float | int) and isinstance(recomputed, float):
        holds = _is_close(claimed, recomputed, tolerance)
    detail = "" if holds else f"recorded {claimed}, recomputed {recomputed}"
    return Check(what=what, holds=holds, detail=detail)


def regrade(folder: RunFolder, progress: ProgressCallback, task: str = "") -> tuple[int, Grade]:
    """Grade the last step of a run with the current task, or with the one in the folder `task`.

    Returns:
        The number of the last step, and its grade.
    """
    spec = folder.spec.replace(task=task) if task else folder.spec
    setup, last_step = restore_setup(spec, progress), len(folder.steps())
    if changed := find_changed_inputs(folder.spec, setup):
        progress(f"Note: the {' and '.join(changed)} changed since the run, so this score is not comparable.")
    store = folder.open_store(setup.data, writable=False)
    return last_step, grade(setup.task, setup.data, store, last_step, setup.sandbox)
