"""Rule: a script that failed and never ran well again."""

from collections.abc import Iterator

from mlagentbench.records import Execution, Step
from mlagentbench.reports.process.evidence import Evidence, subject
from mlagentbench.reports.process.rules.base import Seen
from mlagentbench.reports.process.words import listed
from mlagentbench.words import last_line

TITLE = "errors not repaired"
FROM_TO = (
    ("script_name", "save_name"),
    ("source", "destination"),
)  # arguments of actions that make one file of another


def unrepaired_error(evidence: Evidence) -> Iterator[Seen]:
    """What still fails at the end; a script that was made from a broken one and runs well has repaired it."""
    if not evidence.ended:
        return
    failing: dict[str, list[Step]] = {}
    root: dict[str, str] = {}
    for step in evidence.steps:
        _follow(root, step)
        name = subject(step)
        if step.execution and not well(step.execution):
            failing.setdefault(name, []).append(step)
        elif name and not step.failed:
            mended = root.get(name, name)
            failing = {
                each: steps for each, steps in failing.items() if each != name and root.get(each, each) != mended
            }
    for name, steps in failing.items():
        numbers = tuple(step.number for step in steps)
        why = last_line(steps[-1].observation)
        yield Seen(f"{name} failed in {listed(numbers)} ({why}), and never ran well after that.", numbers)


def well(done: Execution) -> bool:
    """Whether a command came to its end without an error."""
    return done.exit_code == 0 and done.limit in (None, "processes")


def _follow(root: dict[str, str], step: Step) -> None:
    for old, new in FROM_TO:
        source, target = (str(step.call.args.get(name, "")).removeprefix("./") for name in (old, new))
        if source and target and source != target and not step.failed:
            root[target] = root.get(source, source)
