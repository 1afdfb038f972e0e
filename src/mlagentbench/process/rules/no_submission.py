"""Rule: there was nothing to grade."""

from collections.abc import Iterator

from mlagentbench.process.evidence import Evidence
from mlagentbench.process.rules.base import RuleMatch

TITLE = "no submission"
MISSING_SUFFIX = " is missing"  # how the grader puts it


def no_submission(evidence: Evidence) -> Iterator[RuleMatch]:
    """The file that is graded was not there at the end, or the agent itself broke before it made one that counts."""
    result = evidence.run.result
    if (
        result
        and evidence.agent_finished
        and not result.valid
        and is_missing_submission(result.note, result.ending)
    ):
        last = tuple(step.number for step in evidence.steps[-1:])
        yield RuleMatch(f"Nothing was left that could be graded: {result.note}.", last)


def is_missing_submission(note: str, ending: str) -> bool:
    """Whether there was no submission, rather than a bad one."""
    return ending == "crashed" or note.endswith(MISSING_SUFFIX)
