"""Rule: the grader rejected the submission."""

from collections.abc import Iterator

from mlagentbench.process.evidence import Evidence
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.process.rules.no_submission import is_missing_submission

TITLE = "invalid submission"


def invalid_submission(evidence: Evidence) -> Iterator[RuleMatch]:
    """The submission exists, but the grader rejected it."""
    result = evidence.run.result
    if (
        result
        and evidence.agent_finished
        and not result.valid
        and not is_missing_submission(result.note, result.ending)
    ):
        last = tuple(step.number for step in evidence.steps[-1:])
        yield RuleMatch(f"The submission is invalid: {result.note}.", last)
