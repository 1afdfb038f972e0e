"""Rule: there was nothing to grade."""

from collections.abc import Iterator

from mlagentbench.reports.process.evidence import Evidence
from mlagentbench.reports.process.rules.base import Seen

TITLE = "no submission"
MISSING = " is missing"  # how the grader puts it


def no_submission(evidence: Evidence) -> Iterator[Seen]:
    """The file that is graded was not there at the end, or the agent itself broke before it made one that counts."""
    result = evidence.run.result
    if result and evidence.ended and not result.valid and is_none(result.note, result.ending):
        last = tuple(step.number for step in evidence.steps[-1:])
        yield Seen(f"Nothing was left that could be graded: {result.note}.", last)


def is_none(note: str, ending: str) -> bool:
    """Whether there was no submission, rather than a bad one."""
    return ending == "crashed" or note.endswith(MISSING)
