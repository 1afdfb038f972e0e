"""Checks of the contract that run the solutions of a task, and the audit."""

from mlagentbench.audit.audit import run_audit
from mlagentbench.authoring.contract import CheckFailed, TaskUnderTest
from mlagentbench.formatting import format_score
from mlagentbench.system.progress import ignore_progress

TIMING_TOLERANCE, TOLERANCE = 0.1, 1e-6  # relative; another process may run on the other cores
MAX_SDS = 6.0
MAX_LISTED = 3


def check_nothing(subject: TaskUnderTest) -> None:
    """Submitting the workspace as it is does not succeed."""
    result = subject.run_agent("nothing")
    if result.success:
        raise CheckFailed(f"Doing nothing scores {format_score(result.score)} and is a success.")


def check_starter(subject: TaskUnderTest) -> None:
    """The unchanged starter is valid, does not succeed, and scores what task.toml says."""
    result, level = subject.run_agent("baseline"), subject.levels.starter
    if not result.valid or result.score is None:
        raise CheckFailed(f"The starter leaves no valid submission: {result.note}")
    if level is None:
        return
    if result.success:
        raise CheckFailed(f"The unchanged starter scores {format_score(result.score)} and is a success.")
    timed = subject.task.config.traits.timed_function is not None
    tolerance = TIMING_TOLERANCE if timed else TOLERANCE
    if abs(result.score - level.mean) > MAX_SDS * level.sd + tolerance * abs(level.mean):
        raise CheckFailed(
            f"The starter scores {format_score(result.score)}, but task.toml says {format_score(level.mean)}"
            f" ± {format_score(level.sd)}. Measure it again: mlagentbench baseline {subject.task.load_name}"
        )


def check_reference(subject: TaskUnderTest) -> None:
    """The reference succeeds without breaking a rule."""
    result = subject.run_agent("reference")
    if not result.valid:
        raise CheckFailed(f"The reference leaves no valid submission: {result.note}")
    if result.violations:
        raise CheckFailed(f"The reference breaks a rule: {result.violations[0]}")
    if result.baseline is not None and not result.success:
        raise CheckFailed(
            f"The reference scores {format_score(result.score)}, which is no success over the starter"
            f" ({format_score(result.baseline)})."
        )


def check_packages(subject: TaskUnderTest) -> None:
    """No data set that the packages of the runtime can load contains the data of the task."""
    _run_attacks(subject, ["package_datasets"])


def check_audit(subject: TaskUnderTest) -> None:
    """No scripted attack of the quick audit succeeds."""
    _run_attacks(subject, [])


def _run_attacks(subject: TaskUnderTest, names: list[str]) -> None:
    findings = run_audit([subject.task.load_name], names, True, ignore_progress, lambda finding: None)
    succeeded = [
        f"{finding.attack}: {finding.what}" for finding in findings if finding.outcome == "SUCCEEDED"
    ]
    if succeeded:
        listed = "; ".join(succeeded[:MAX_LISTED])
        raise CheckFailed(f"{len(succeeded)} of {len(findings)} attacks succeeded. {listed}")
