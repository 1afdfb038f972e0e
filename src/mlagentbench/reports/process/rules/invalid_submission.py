"""Rule: what was submitted could not be graded."""

from collections.abc import Iterator

from mlagentbench.reports.process.evidence import Evidence
from mlagentbench.reports.process.rules.base import Seen
from mlagentbench.reports.process.rules.no_submission import is_none

TITLE = "invalid submission"


def invalid_submission(evidence: Evidence) -> Iterator[Seen]:
    """The file was there, and the grader refused it."""
    result = evidence.run.result
    if result and evidence.ended and not result.valid and not is_none(result.note, result.ending):
        last = tuple(step.number for step in evidence.steps[-1:])
        yield Seen(f"What was submitted is not valid: {result.note}.", last)
