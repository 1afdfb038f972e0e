"""Rule: a script failed and never ran successfully afterwards."""

from collections.abc import Iterator

from mlagentbench.formatting import last_line
from mlagentbench.process.evidence import Evidence, executed_program
from mlagentbench.process.phrases import format_steps
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.records import Execution, Step

TITLE = "unresolved errors"
# Arguments of actions that create one file from another.
SOURCE_TARGET_ARGS = (("script_name", "save_name"), ("source", "destination"))


def unresolved_error(evidence: Evidence) -> Iterator[RuleMatch]:
    """Scripts that still fail at the end; a copy of the script that runs successfully resolves the error."""
    if not evidence.agent_finished:
        return
    failing: dict[str, list[Step]] = {}
    origins: dict[str, str] = {}
    for step in evidence.steps:
        _track_copies(origins, step)
        name = executed_program(step)
        if step.execution and not ran_successfully(step.execution):
            failing.setdefault(name, []).append(step)
        elif name and not step.failed:
            resolved = origins.get(name, name)
            failing = {
                script: steps
                for script, steps in failing.items()
                if script != name and origins.get(script, script) != resolved
            }
    for name, steps in failing.items():
        numbers = tuple(step.number for step in steps)
        reason = last_line(steps[-1].observation)
        sentence = (
            f"{name} failed in {format_steps(numbers)} ({reason}) and never ran successfully afterwards."
        )
        yield RuleMatch(sentence, numbers)


def ran_successfully(execution: Execution) -> bool:
    """Whether a command finished without an error."""
    return execution.exit_code == 0 and execution.limit in (None, "processes")


def _track_copies(origins: dict[str, str], step: Step) -> None:
    for old, new in SOURCE_TARGET_ARGS:
        source, target = (str(step.call.args.get(name, "")).removeprefix("./") for name in (old, new))
        if source and target and source != target and not step.failed:
            origins[target] = origins.get(source, source)
