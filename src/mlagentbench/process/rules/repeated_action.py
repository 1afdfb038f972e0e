"""Rule: the same action with the same answer, although nothing had changed."""

import json
from collections.abc import Iterator

from mlagentbench.actions.python_repl import python_repl
from mlagentbench.formatting import summarize_call
from mlagentbench.process.evidence import Evidence
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.process.rules.parsing_error import NO_ACTION
from mlagentbench.records import Step

TITLE = "repeated actions"
CallKey = tuple[str, str, str, int]


def repeated_action(evidence: Evidence) -> Iterator[RuleMatch]:
    """Equal calls with equal observations, and no file changed by the second nor by anything in between."""
    since: dict[CallKey, list[Step]] = {}  # what was done on the files as they are
    for step, key in _keyed_steps(evidence):
        if step.number in evidence.changes:
            yield from _find_repeats(since)
            since = {}
        since.setdefault(key, []).append(step)
    yield from _find_repeats(since)


def _keyed_steps(evidence: Evidence) -> Iterator[tuple[Step, CallKey]]:
    session, last = 0, ""  # what an interpreter does depends on all that it did before
    for step in evidence.steps:
        args = json.dumps(step.call.args, sort_keys=True)
        if step.call.action == python_repl.name and args != last:
            session, last = session + 1, args
        if step.call.action != NO_ACTION:
            yield (
                step,
                (
                    step.call.action,
                    args,
                    _comparable_observation(step),
                    session if step.call.action == python_repl.name else 0,
                ),
            )


def _comparable_observation(step: Step) -> str:
    """The observation, less the line of seconds and memory that is never twice the same."""
    return step.observation.partition("\n")[2] if step.execution else step.observation


def _find_repeats(since: dict[CallKey, list[Step]]) -> Iterator[RuleMatch]:
    for same in since.values():
        if len(same) > 1:
            what = f"{summarize_call(same[0].call)!r} was done {len(same)} times with the same answer"
            yield RuleMatch(f"{what}, although nothing had changed.", tuple(step.number for step in same))
