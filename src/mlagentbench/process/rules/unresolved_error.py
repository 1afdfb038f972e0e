"""Rule: a script that failed and never ran well again."""

from collections.abc import Iterator

from mlagentbench.formatting import last_line
from mlagentbench.process.evidence import Evidence, executed_program
from mlagentbench.process.phrases import format_steps
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.records import Execution, Step

TITLE = "errors not repaired"
SOURCE_TARGET_ARGS = (
    ("script_name", "save_name"),
    ("source", "destination"),
)  # arguments of actions that make one file of another


def unresolved_error(evidence: Evidence) -> Iterator[RuleMatch]:
    """What still fails at the end; a script that was made from a broken one and runs well has repaired it."""
    if not evidence.agent_finished:
        return
    failing: dict[str, list[Step]] = {}
    root: dict[str, str] = {}
    for step in evidence.steps:
        _track_copies(root, step)
        name = executed_program(step)
        if step.execution and not ran_successfully(step.execution):
            failing.setdefault(name, []).append(step)
        elif name and not step.failed:
            mended = root.get(name, name)
            failing = {
                each: steps
                for each, steps in failing.items()
                if each != name and root.get(each, each) != mended
            }
    for name, steps in failing.items():
        numbers = tuple(step.number for step in steps)
        why = last_line(steps[-1].observation)
        yield RuleMatch(
            f"{name} failed in {format_steps(numbers)} ({why}), and never ran well after that.", numbers
        )


def ran_successfully(done: Execution) -> bool:
    """Whether a command came to its end without an error."""
    return done.exit_code == 0 and done.limit in (None, "processes")


def _track_copies(root: dict[str, str], step: Step) -> None:
    for old, new in SOURCE_TARGET_ARGS:
        source, target = (str(step.call.args.get(name, "")).removeprefix("./") for name in (old, new))
        if source and target and source != target and not step.failed:
            root[target] = root.get(source, source)
