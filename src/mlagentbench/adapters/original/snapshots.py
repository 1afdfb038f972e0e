"""The original's copies of the workspace, one a step, put into a store that keeps each content once."""

import re
from pathlib import Path

from mlagentbench.adapters.original.original import Original
from mlagentbench.errors import Fault
from mlagentbench.preparation.prepare import Prepared
from mlagentbench.records import GB, Limits
from mlagentbench.runner.folder import RunFolder
from mlagentbench.workspace.store import Store, TooBig

READING = ("List Files", "Read File", "Understand File", "Inspect Script Lines")  # which leave files as they were
BOUNDS = Limits()
SUBMISSION = "submission.csv"  # of all the original's tasks that ask for predictions
STEP = re.compile(r"step_(\d{1,6})_files")


def keep_snapshots(run: Original, folder: RunFolder) -> None:
    """What was there after each step; the original noted nothing before the first."""
    store = Store(folder.path / "snapshots", run.logs.root)
    last, kept = len(run.steps), 0
    for step in run.steps:
        place = run.logs.folder(f"env_log/traces/step_{step.number - 1}_files")
        if place and step.number == 1 and step.call.action in READING:
            kept += _keep(run, store, 0, place)
        if place:
            kept += _keep(run, store, step.number, place)
    if place := run.logs.folder("env_log/traces/step_final_files"):
        kept += _keep(run, store, last, place)
    if not kept:
        run.logs.note("there is no snapshot of any step")
    numbers = [int(found[1]) for name in run.logs.names("env_log/traces") if (found := STEP.fullmatch(name))]
    if later := sum(number >= last for number in numbers):
        run.logs.note(f"snapshots of {later} further steps were left out: nothing is known of those steps")


def _keep(run: Original, store: Store, number: int, place: Path) -> bool:
    try:
        store.workspace = place
        store.snapshot(number, int(BOUNDS.disk_gb * GB), BOUNDS.files)
    except (TooBig, Fault) as error:
        run.logs.note(f"{place.name} was left out: {error}")
        return False
    return True


def unfit(store: Store, last: int, data: Prepared, submission: str) -> str:
    """Why answers to this data are none to what the run was asked; nothing if they are.

    Files of one name and one content prove that it is the same data. Rows of another split may bear the same numbers,
    so that a submission would be graded without a complaint, and wrongly.
    """
    if submission != SUBMISSION:
        return f"it wants {submission}, and the original asked for something else"
    seen = {**store.state(last), **store.state(1)}
    there = {path: seen[path].hash == name for path, (name, _) in data.files.items() if path in seen}
    if different := [path for path, same in there.items() if not same]:
        return f"{different[0]} is another than the one that it has answers to"
    if not there:
        return "no file of the data is among the snapshots, so that it cannot be told whether it is the same"
    return ""
