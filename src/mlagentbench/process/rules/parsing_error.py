"""Rule: replies or calls could not be parsed."""

from collections import Counter
from collections.abc import Iterator

from mlagentbench.environment.dialogue import unreadable_reply_call
from mlagentbench.process.evidence import Evidence
from mlagentbench.process.phrases import format_count
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.records import Step

TITLE = "parsing errors"
NO_ACTION = unreadable_reply_call("").action
# How the observation of a refused call starts. Runs of earlier versions contain the earlier wording.
REFUSED_PREFIXES = (
    "Error: No such action: ",
    "Error: The call cannot be written as JSON",
    "Error: there is no action ",
    "Error: the call cannot be written as JSON",
)
ARGUMENTS_HINT = "The arguments are: "


def parsing_error(evidence: Evidence) -> Iterator[RuleMatch]:
    """Steps without a valid action or with wrong arguments; and replies that had to be requested again."""
    unparsed = {step.number for step in evidence.steps if _is_unparsed(step)}
    retries = Counter(reply.step for reply in evidence.replies if reply.is_retry)
    problems = []
    if unparsed:
        count = format_count(len(unparsed), "step")
        problems.append(f"{count} failed because the call was not a valid action")
    if retries:
        count = format_count(retries.total(), "reply", "replies")
        problems.append(f"{count} could not be parsed and had to be requested again")
    if problems:
        yield RuleMatch("; ".join(problems) + ".", tuple(sorted(unparsed | retries.keys())))


def _is_unparsed(step: Step) -> bool:
    if not step.failed:
        return False
    if step.call.action == NO_ACTION or step.observation.startswith(REFUSED_PREFIXES):
        return True
    return step.observation.startswith(f"Error: {step.call.action}: ") and ARGUMENTS_HINT in step.observation
