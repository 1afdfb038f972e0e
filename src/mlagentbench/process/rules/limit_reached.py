"""Rule: the run hit a limit."""

from collections.abc import Iterator

from mlagentbench.process.evidence import Evidence
from mlagentbench.process.phrases import format_count
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.records import Limits

TITLE = "stopped by a limit"


def limit_reached(evidence: Evidence) -> Iterator[RuleMatch]:
    """The run hit a limit before the agent submitted; the workspace at that point was graded."""
    result = evidence.run.result
    limit = _limits(evidence.run.spec.limits).get(result.ending) if result else None
    if limit:
        last = tuple(step.number for step in evidence.steps[-1:])
        yield RuleMatch(f"The run hit its limit of {limit} before it submitted.", last)


def _limits(limits: Limits) -> dict[str, str]:
    return {
        "steps": format_count(limits.steps, "step"),
        "time": f"{limits.hours:g} hours",
        "tokens": f"{limits.tokens or 0:,} tokens",
        "money": f"{limits.dollars or 0:g} dollars",
    }
