"""Rule: there was no submission to grade."""

from collections.abc import Iterator

from mlagentbench.process.evidence import Evidence
from mlagentbench.process.rules.base import RuleMatch

TITLE = "no submission"
MISSING_SUFFIX = " is missing"  # end of the grader's note


def no_submission(evidence: Evidence) -> Iterator[RuleMatch]:
    """The submission file does not exist, or the agent crashed before it wrote a gradable one."""
    result = evidence.run.result
    if (
        result
        and evidence.agent_finished
        and not result.valid
        and is_missing_submission(result.note, result.ending)
    ):
        last = tuple(step.number for step in evidence.steps[-1:])
        yield RuleMatch(f"There was no submission to grade: {result.note}.", last)


def is_missing_submission(note: str, ending: str) -> bool:
    """Whether the submission is missing, rather than invalid."""
    return ending == "crashed" or note.endswith(MISSING_SUFFIX)
