"""The original's copies of the workspace, one a step, put into a store that keeps each content once."""

import re
from pathlib import Path

from mlagentbench.adapters.original.original_run import OriginalRun
from mlagentbench.errors import Fault
from mlagentbench.preparation.prepare import PreparedData
from mlagentbench.records import BYTES_PER_GB, Limits
from mlagentbench.runner.folder import RunFolder
from mlagentbench.workspace.store import Store, WorkspaceTooLarge

READ_ONLY_ACTIONS = (
    "List Files",
    "Read File",
    "Understand File",
    "Inspect Script Lines",
)  # which leave files as they were
SNAPSHOT_LIMITS = Limits()
SUBMISSION_FILE = "submission.csv"  # of all the original's tasks that ask for predictions
STEP_FOLDER = re.compile(r"step_(\d{1,6})_files")


def import_snapshots(run: OriginalRun, folder: RunFolder) -> None:
    """What was there after each step; the original noted nothing before the first."""
    store = Store(folder.path / "snapshots", run.logs.root)
    last, kept = len(run.steps), 0
    for step in run.steps:
        place = run.logs.find_subfolder(f"env_log/traces/step_{step.number - 1}_files")
        if place and step.number == 1 and step.call.action in READ_ONLY_ACTIONS:
            kept += _import_snapshot(run, store, 0, place)
        if place:
            kept += _import_snapshot(run, store, step.number, place)
    if place := run.logs.find_subfolder("env_log/traces/step_final_files"):
        kept += _import_snapshot(run, store, last, place)
    if not kept:
        run.logs.add_note("there is no snapshot of any step")
    numbers = [
        int(found[1])
        for name in run.logs.list_names("env_log/traces")
        if (found := STEP_FOLDER.fullmatch(name))
    ]
    if later := sum(number >= last for number in numbers):
        run.logs.add_note(
            f"snapshots of {later} further steps were left out: nothing is known of those steps"
        )


def _import_snapshot(run: OriginalRun, store: Store, number: int, place: Path) -> bool:
    try:
        store.workspace = place
        store.snapshot(number, int(SNAPSHOT_LIMITS.disk_gb * BYTES_PER_GB), SNAPSHOT_LIMITS.files)
    except (WorkspaceTooLarge, Fault) as error:
        run.logs.add_note(f"{place.name} was left out: {error}")
        return False
    return True


def explain_mismatch(store: Store, last: int, data: PreparedData, submission: str) -> str:
    """Why answers to this data are none to what the run was asked; nothing if they are.

    Files of one name and one content prove that it is the same data. Rows of another split may bear the same numbers,
    so that a submission would be graded without a complaint, and wrongly.
    """
    if submission != SUBMISSION_FILE:
        return f"it wants {submission}, and the original asked for something else"
    seen = {**store.state(last), **store.state(1)}
    there = {path: seen[path].hash == name for path, (name, _) in data.files.items() if path in seen}
    if different := [path for path, same in there.items() if not same]:
        return f"{different[0]} is another than the one that it has answers to"
    if not there:
        return "no file of the data is among the snapshots, so that it cannot be told whether it is the same"
    return ""
