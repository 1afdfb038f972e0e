"""Rule: a script as it stands at the end was never run."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from mlagentbench.errors import Fault
from mlagentbench.records import Step
from mlagentbench.reports.process.evidence import OUTSIDE, Evidence, subject
from mlagentbench.reports.process.rules.base import Seen
from mlagentbench.workspace.manifest import State

TITLE = "edits never executed"
WORD = re.compile(r"\w+")


def unexecuted_edit(evidence: Evidence) -> Iterator[Seen]:
    """Scripts whose last version is the agent's, and that neither were run nor are named by anything that was."""
    if not evidence.ended:
        return
    edited: dict[str, int] = {}
    ran = {entry.hash for entry in evidence.start.values()}  # what was given is no edit
    for step, state in evidence.states():
        line = evidence.changes.get(step.number)
        if subject(step):
            waiting = {path for path in edited if path in state and state[path].hash not in ran}
            ran |= {state[path].hash for path in _reached(evidence, step, state, waiting)}
        elif line:
            scripts = (path for path, entry in line.changed.items() if entry.kind == "file" and path.endswith(".py"))
            edited |= dict.fromkeys(scripts, step.number)
    for path, number in edited.items():
        if path in evidence.final and evidence.final[path].hash not in ran:
            yield Seen(f"{path} was changed in step {number}, and what it became was never run.", (number,))


def _reached(evidence: Evidence, step: Step, state: State, waiting: set[str]) -> set[str]:
    """The scripts that a step ran: those that its call names, those that they name, and so on."""
    if step.call.action == OUTSIDE:  # nobody sees what an outside program runs
        return waiting
    scripts = {path for path in state if path.endswith(".py") and state[path].kind == "file"}
    reached = _named(" ".join(map(str, step.call.args.values())), scripts)
    todo = list(reached)
    try:
        while todo and not waiting <= reached:
            more = _named(evidence.text(state[todo.pop()]), scripts) - reached
            reached |= more
            todo += more
    except Fault:  # a run without the contents of its files: nobody can say
        return waiting | reached
    return reached


def _named(text: str, scripts: set[str]) -> set[str]:
    words = set(WORD.findall(text))
    return {path for path in scripts if PurePosixPath(path).stem in words}
