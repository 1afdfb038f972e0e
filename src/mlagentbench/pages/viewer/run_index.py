"""The runs below a folder: their current status, and access to each run."""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote

from mlagentbench.analysis.runs import Run, find_run_folders
from mlagentbench.errors import UsageError
from mlagentbench.pages.viewer.running_output import find_running_output
from mlagentbench.runner.batch.batch_status import BatchFollower
from mlagentbench.runner.batch.run_status import RunStatus
from mlagentbench.runner.folder import RunFolder
from mlagentbench.system.lock import is_locked

# The files that the page of a run depends on.
RUN_FILES = ("run.json", "trace.jsonl", "model_calls.jsonl", "result.json", "grades.jsonl", "judged.json")


class RunRow(NamedTuple):
    """A run in the list, with its path relative to the root folder."""

    path: str
    status: RunStatus

    @property
    def link(self) -> str:
        """The address of the run's page; a folder name need not be valid UTF-8."""
        return f"/run/{quote(os.fsencode(self.path))}"


class RunIndex:
    """A run, a batch, or a folder of runs and batches."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"No such folder: {root}")
        self.root = root.resolve()
        self.is_single_run = (root / "run.json").is_file()
        self._followers: dict[Path, BatchFollower] = {}
        # A follower caches what it has read, so that only one thread may use it.
        self._lock = Lock()
        if not self.is_single_run and not self.list_runs():
            raise UsageError(f"No runs found in {root}")

    def list_runs(self) -> list[RunRow]:
        """The status of every run, including the queued runs of a batch."""
        folders = {run_folder.parent for run_folder in find_run_folders(self.root)}
        if (self.root / "batch.json").is_file():
            folders.add(self.root)
        with self._lock:
            for folder in folders - self._followers.keys():
                self._followers[folder] = BatchFollower(folder)
            return [
                RunRow(str((folder / status.name).relative_to(self.root)), status)
                for folder in sorted(folders)
                for status in self._followers[folder].refresh().runs
            ]

    def load_run(self, path: str) -> tuple[Run, str] | None:
        """Read a run and its version stamp; None for a path that is not in the list."""
        run_path = self.root if self.is_single_run else self.root / path
        if run_path not in find_run_folders(self.root):
            return None
        # Computed before anything is read: a later change results in another stamp.
        stamp = _version_stamp(run_path)
        folder = RunFolder(run_path)
        return Run(folder, folder.result), stamp


def _version_stamp(run_path: Path) -> str:
    """A string that changes whenever the page of the run would change."""
    is_running = is_locked(run_path / "run.lock")
    parts, files = [int(is_running)], [run_path / name for name in RUN_FILES]
    if is_running and (output := find_running_output(run_path)):
        files.append(output)
    for file in files:
        with suppress(OSError):
            stat = file.stat()
            parts += [stat.st_size, stat.st_mtime_ns]
    return "-".join(f"{part:x}" for part in parts)
