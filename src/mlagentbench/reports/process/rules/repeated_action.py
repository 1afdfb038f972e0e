"""Rule: the same action with the same answer, although nothing had changed."""

import json
from collections.abc import Iterator

from mlagentbench.actions.python_repl import NAME as REPL
from mlagentbench.records import Step
from mlagentbench.reports.process.evidence import Evidence
from mlagentbench.reports.process.rules.base import Seen
from mlagentbench.reports.process.rules.parsing_error import NONE
from mlagentbench.words import told

TITLE = "repeated actions"
Key = tuple[str, str, str, int]


def repeated_action(evidence: Evidence) -> Iterator[Seen]:
    """Equal calls with equal observations, and no file changed by the second nor by anything in between."""
    since: dict[Key, list[Step]] = {}  # what was done on the files as they are
    for step, key in _keyed(evidence):
        if step.number in evidence.changes:
            yield from _repeats(since)
            since = {}
        since.setdefault(key, []).append(step)
    yield from _repeats(since)


def _keyed(evidence: Evidence) -> Iterator[tuple[Step, Key]]:
    session, last = 0, ""  # what an interpreter does depends on all that it did before
    for step in evidence.steps:
        args = json.dumps(step.call.args, sort_keys=True)
        if step.call.action == REPL and args != last:
            session, last = session + 1, args
        if step.call.action != NONE:
            yield step, (step.call.action, args, _answer(step), session if step.call.action == REPL else 0)


def _answer(step: Step) -> str:
    """The observation, less the line of seconds and memory that is never twice the same."""
    return step.observation.partition("\n")[2] if step.execution else step.observation


def _repeats(since: dict[Key, list[Step]]) -> Iterator[Seen]:
    for same in since.values():
        if len(same) > 1:
            what = f"{told(same[0].call)!r} was done {len(same)} times with the same answer"
            yield Seen(f"{what}, although nothing had changed.", tuple(step.number for step in same))
