"""Rule: replies and calls that could not be understood."""

from collections import Counter
from collections.abc import Iterator

from mlagentbench.environment.dialogue import unreadable_reply_call
from mlagentbench.process.evidence import Evidence
from mlagentbench.process.phrases import format_count
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.records import Step

TITLE = "parsing errors"
NO_ACTION = unreadable_reply_call("").action
REFUSED_PREFIXES = (
    "Error: there is no action ",
    "Error: the call cannot be written as JSON",
)  # words of the environment
ARGUMENTS_HINT = "The arguments are: "


def parsing_error(evidence: Evidence) -> Iterator[RuleMatch]:
    """Steps that were no action, or one with wrong arguments; and replies that had to be asked for once more."""
    lost = {step.number for step in evidence.steps if _is_unparsed(step)}
    again = Counter(reply.step for reply in evidence.replies if reply.is_retry)
    told = []
    if lost:
        told.append(
            f"{format_count(len(lost), 'step')} could not be done, since what was asked for is no action or does not fit one"
        )
    if again:
        told.append(
            f"{format_count(again.total(), 'reply', 'replies')} could not be used and had to be asked for again"
        )
    if told:
        yield RuleMatch("; ".join(told) + ".", tuple(sorted(lost | again.keys())))


def _is_unparsed(step: Step) -> bool:
    if not step.failed:
        return False
    misused = (
        step.observation.startswith(f"Error: {step.call.action}: ") and ARGUMENTS_HINT in step.observation
    )
    return step.call.action == NO_ACTION or step.observation.startswith(REFUSED_PREFIXES) or misused
