"""Imports the original's copies of the workspace, one per step, into a deduplicating store."""

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
)  # actions that change no files
SNAPSHOT_LIMITS = Limits()
SUBMISSION_FILE = "submission.csv"  # in all tasks of the original that ask for predictions
STEP_FOLDER = re.compile(r"step_(\d{1,6})_files")


def import_snapshots(run: OriginalRun, folder: RunFolder) -> None:
    """Import the snapshot after each step; the original has none from before the first step."""
    store = Store(folder.path / "snapshots", run.logs.root)
    last_step, imported = len(run.steps), 0
    for step in run.steps:
        snapshot = run.logs.find_subfolder(f"env_log/traces/step_{step.number - 1}_files")
        if snapshot and step.number == 1 and step.call.action in READ_ONLY_ACTIONS:
            imported += _import_snapshot(run, store, 0, snapshot)
        if snapshot:
            imported += _import_snapshot(run, store, step.number, snapshot)
    if snapshot := run.logs.find_subfolder("env_log/traces/step_final_files"):
        imported += _import_snapshot(run, store, last_step, snapshot)
    if not imported:
        run.logs.add_note("no step has a snapshot")
    numbers = [
        int(match[1])
        for name in run.logs.list_names("env_log/traces")
        if (match := STEP_FOLDER.fullmatch(name))
    ]
    if later := sum(number >= last_step for number in numbers):
        run.logs.add_note(f"snapshots of {later} further steps were skipped: the log has no such steps")


def _import_snapshot(run: OriginalRun, store: Store, number: int, snapshot: Path) -> bool:
    try:
        store.workspace = snapshot
        store.snapshot(number, int(SNAPSHOT_LIMITS.disk_gb * BYTES_PER_GB), SNAPSHOT_LIMITS.files)
    except (WorkspaceTooLarge, Fault) as error:
        run.logs.add_note(f"{snapshot.name} was skipped: {error}")
        return False
    return True


def explain_mismatch(store: Store, last_step: int, data: PreparedData, submission: str) -> str:
    """Explain why our answers do not apply to the run's data; empty if they do.

    Files with the same name and content prove that the data is the same. Rows of another split may have the
    same ids, so that a submission would be graded without an error, but wrongly.
    """
    if submission != SUBMISSION_FILE:
        return f"it expects {submission}, but the original asked for a different file"
    files = {**store.state(last_step), **store.state(1)}
    is_same = {path: files[path].hash == name for path, (name, _) in data.files.items() if path in files}
    if different := [path for path, same in is_same.items() if not same]:
        return f"{different[0]} differs from the file that it has the answers for"
    if not is_same:
        return "the snapshots contain no file of the data, so it is unknown whether the data is the same"
    return ""
