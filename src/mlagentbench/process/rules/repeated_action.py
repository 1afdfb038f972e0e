"""Rule: the same action was repeated with the same observation, although nothing had changed."""

import json
from collections.abc import Iterator

from mlagentbench.actions.python_repl import python_repl
from mlagentbench.formatting import summarize_call
from mlagentbench.process.evidence import Evidence
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.process.rules.parsing_error import NO_ACTION
from mlagentbench.records import EXTERNAL_COMMAND, Step

TITLE = "repeated actions"
UNKNOWN_CALL = "null"  # a turn of an external program that says nothing about what it did
CallKey = tuple[str, str, str, int]


def repeated_action(evidence: Evidence) -> Iterator[RuleMatch]:
    """Equal calls with equal observations, with no file changed by the repetition or in between."""
    since: dict[CallKey, list[Step]] = {}  # steps since the last file change
    for step, key in _keyed_steps(evidence):
        if step.number in evidence.changes:
            yield from _find_repeats(since)
            since = {}
        since.setdefault(key, []).append(step)
    yield from _find_repeats(since)


def _keyed_steps(evidence: Evidence) -> Iterator[tuple[Step, CallKey]]:
    session, last = 0, ""  # the result of a REPL command depends on all commands before it
    for step in evidence.steps:
        args = json.dumps(_comparable_arguments(step), sort_keys=True)
        if step.call.action == python_repl.name and args != last:
            session, last = session + 1, args
        if step.call.action != NO_ACTION and args != UNKNOWN_CALL:
            repl_session = session if step.call.action == python_repl.name else 0
            yield step, (step.call.action, args, _comparable_observation(step), repl_session)


def _comparable_arguments(step: Step) -> object:
    """The arguments without what always differs: the number of a turn and the ids of tool calls."""
    if step.call.action != EXTERNAL_COMMAND:
        return step.call.args
    return [(call.name, call.arguments) for call in step.call.tool_calls] or None


def _comparable_observation(step: Step) -> str:
    """The observation without its first line of seconds and memory, which always differs."""
    return step.observation.partition("\n")[2] if step.execution else step.observation


def _find_repeats(since: dict[CallKey, list[Step]]) -> Iterator[RuleMatch]:
    for steps in since.values():
        if len(steps) > 1:
            call = repr(summarize_call(steps[0].call))
            sentence = (
                f"{call} ran {len(steps)} times with the same observation, although nothing had changed."
            )
            yield RuleMatch(sentence, tuple(step.number for step in steps))
