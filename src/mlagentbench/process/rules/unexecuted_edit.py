"""Rule: the final version of a script was never run."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from mlagentbench.errors import Fault
from mlagentbench.process.evidence import Evidence, executed_program, shell_commands
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.records import EXTERNAL_COMMAND, Step
from mlagentbench.workspace.manifest import State

TITLE = "edits never executed"
WORD = re.compile(r"\w+")


def unexecuted_edit(evidence: Evidence) -> Iterator[RuleMatch]:
    """Scripts whose final version is the agent's and was neither run nor named by anything that was run."""
    if not evidence.agent_finished:
        return
    edited: dict[str, int] = {}
    ran = {entry.hash for entry in evidence.initial_state.values()}  # the starter files count as run
    for step, state in evidence.iter_states():
        line = evidence.changes.get(step.number)
        if line and (step.call.tool_calls or not executed_program(step)):
            scripts = (
                path for path, entry in line.changed.items() if entry.kind == "file" and path.endswith(".py")
            )
            edited |= dict.fromkeys(scripts, step.number)
        if executed_program(step):
            pending = {path for path in edited if path in state and state[path].hash not in ran}
            ran |= {state[path].hash for path in _executed_scripts(evidence, step, state, pending)}
    for path, number in edited.items():
        if path in evidence.final_state and evidence.final_state[path].hash not in ran:
            yield RuleMatch(
                f"{path} was changed in step {number}, and the changed version was never run.", (number,)
            )


def _executed_scripts(evidence: Evidence, step: Step, state: State, pending: set[str]) -> set[str]:
    """The scripts that a step ran: those named in its call, those named in them, and so on."""
    if step.call.action == EXTERNAL_COMMAND and not step.call.tool_calls:
        # It is unknown what the program ran, unless it is one that acts by tool calls.
        return set() if evidence.has_tool_calls else pending
    scripts = {path for path in state if path.endswith(".py") and state[path].kind == "file"}
    call = shell_commands(step) or " ".join(map(str, step.call.args.values()))
    executed = _scripts_named_in(call, scripts)
    unread = list(executed)
    try:
        while unread and not pending <= executed:
            more = _scripts_named_in(evidence.read_text(state[unread.pop()]), scripts) - executed
            executed |= more
            unread += more
    except Fault:  # the run folder lacks file contents: assume that all pending scripts were run
        return pending | executed
    return executed


def _scripts_named_in(text: str, scripts: set[str]) -> set[str]:
    words = set(WORD.findall(text))
    return {path for path in scripts if PurePosixPath(path).stem in words}
