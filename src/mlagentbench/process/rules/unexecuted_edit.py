"""Rule: a script as it stands at the end was never run."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from mlagentbench.errors import Fault
from mlagentbench.process.evidence import EXTERNAL_COMMAND, Evidence, executed_program
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.records import Step
from mlagentbench.workspace.manifest import State

TITLE = "edits never executed"
WORD = re.compile(r"\w+")


def unexecuted_edit(evidence: Evidence) -> Iterator[RuleMatch]:
    """Scripts whose last version is the agent's, and that neither were run nor are named by anything that was."""
    if not evidence.agent_finished:
        return
    edited: dict[str, int] = {}
    ran = {entry.hash for entry in evidence.initial_state.values()}  # what was given is no edit
    for step, state in evidence.iter_states():
        line = evidence.changes.get(step.number)
        if executed_program(step):
            waiting = {path for path in edited if path in state and state[path].hash not in ran}
            ran |= {state[path].hash for path in _executed_scripts(evidence, step, state, waiting)}
        elif line:
            scripts = (
                path for path, entry in line.changed.items() if entry.kind == "file" and path.endswith(".py")
            )
            edited |= dict.fromkeys(scripts, step.number)
    for path, number in edited.items():
        if path in evidence.final_state and evidence.final_state[path].hash not in ran:
            yield RuleMatch(
                f"{path} was changed in step {number}, and what it became was never run.", (number,)
            )


def _executed_scripts(evidence: Evidence, step: Step, state: State, waiting: set[str]) -> set[str]:
    """The scripts that a step ran: those that its call names, those that they name, and so on."""
    if step.call.action == EXTERNAL_COMMAND:  # nobody sees what an outside program runs
        return waiting
    scripts = {path for path in state if path.endswith(".py") and state[path].kind == "file"}
    reached = _scripts_named_in(" ".join(map(str, step.call.args.values())), scripts)
    todo = list(reached)
    try:
        while todo and not waiting <= reached:
            more = _scripts_named_in(evidence.read_text(state[todo.pop()]), scripts) - reached
            reached |= more
            todo += more
    except Fault:  # a run without the contents of its files: nobody can say
        return waiting | reached
    return reached


def _scripts_named_in(text: str, scripts: set[str]) -> set[str]:
    words = set(WORD.findall(text))
    return {path for path in scripts if PurePosixPath(path).stem in words}
