"""Rule: replies and calls that could not be understood."""

from collections import Counter
from collections.abc import Iterator

from mlagentbench.dialogue import mistake
from mlagentbench.records import Step
from mlagentbench.reports.process.evidence import Evidence
from mlagentbench.reports.process.rules.base import Seen
from mlagentbench.reports.process.words import counted

TITLE = "parsing errors"
NONE = mistake("").action
REFUSED = ("Error: there is no action ", "Error: the call cannot be written as JSON")  # words of the environment
MISUSED = "The arguments are: "


def parsing_error(evidence: Evidence) -> Iterator[Seen]:
    """Steps that were no action, or one with wrong arguments; and replies that had to be asked for once more."""
    lost = {step.number for step in evidence.steps if _is_lost(step)}
    again = Counter(reply.step for reply in evidence.said if reply.again)
    told = []
    if lost:
        told.append(
            f"{counted(len(lost), 'step')} could not be done, since what was asked for is no action or does not fit one"
        )
    if again:
        told.append(f"{counted(again.total(), 'reply', 'replies')} could not be used and had to be asked for again")
    if told:
        yield Seen("; ".join(told) + ".", tuple(sorted(lost | again.keys())))


def _is_lost(step: Step) -> bool:
    if not step.failed:
        return False
    misused = step.observation.startswith(f"Error: {step.call.action}: ") and MISUSED in step.observation
    return step.call.action == NONE or step.observation.startswith(REFUSED) or misused
