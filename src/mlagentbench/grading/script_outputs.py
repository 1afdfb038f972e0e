"""Checks from the record that scripts wrote the files that a task's rules require scripts to write."""

from collections.abc import Iterator, Sequence

from mlagentbench.grading.executed_scripts import EXTERNAL_ACTIONS, REPL_ACTION
from mlagentbench.records import Step
from mlagentbench.workspace.store import Store


def find_unscripted_outputs(store: Store, steps: Sequence[Step], paths: Sequence[str]) -> Iterator[str]:
    """Yield one violation for each file whose content no script wrote.

    What counts is the content: a script's output may be copied or moved by other actions afterwards. Files
    that are missing or as they were at the start are not reported.

    Args:
        store: The snapshots of the workspace.
        steps: The steps up to the graded one.
        paths: The files, relative to the workspace.
    """
    if not paths:
        return
    initial, final = store.state(0), store.state(len(steps))
    script_steps = {step.number for step in steps if _may_run_script(step)}
    hashes_by_scripts: set[str] = set()
    last_writers: dict[str, int] = {}
    for line in store.manifest_lines():
        if 0 < line.step <= len(steps):
            last_writers |= {path: line.step for path in paths if path in line.changed}
            if line.step in script_steps:
                hashes_by_scripts |= {entry.hash for entry in line.changed.values() if entry.kind == "file"}
    for path in paths:
        entry, original = final.get(path), initial.get(path)
        if entry is None or entry.kind != "file" or (original and original.hash == entry.hash):
            continue
        number = last_writers.get(path)  # a damaged manifest may have none
        if number and entry.hash not in hashes_by_scripts:
            action = steps[number - 1].call.action
            yield f"{path} was not written by a script: it was last changed at step {number} by {action}"


def _may_run_script(step: Step) -> bool:
    """Whether the step ran a program of its own.

    A REPL command is not one, even if it starts a script: the record does not tell what wrote the file. A
    turn of an external program always is: it may run scripts and write files in one turn, and nobody can tell
    them apart afterwards.
    """
    if step.call.action == REPL_ACTION:
        return False
    return step.call.action in EXTERNAL_ACTIONS or step.execution is not None
