"""The runs below a folder as they are now: how each stands, and each to be read again."""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote

from mlagentbench.analysis.runs import Run, find_run_folders
from mlagentbench.errors import UsageError
from mlagentbench.runner.batch.batch_status import BatchFollower
from mlagentbench.runner.batch.run_status import RunStatus
from mlagentbench.runner.folder import RunFolder
from mlagentbench.system.lock import is_locked

RUN_FILES = ("run.json", "trace.jsonl", "model_calls.jsonl", "result.json", "grades.jsonl", "judged.json")


class RunRow(NamedTuple):
    """A run in the list, by its path below the folder."""

    path: str
    status: RunStatus

    @property
    def link(self) -> str:
        """Its page; the name of a folder need not be UTF-8."""
        return f"/run/{quote(os.fsencode(self.path))}"


class RunIndex:
    """A run, a batch, or a folder of those."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"there is no folder {root}")
        self.root = root.resolve()
        self.is_single_run = (root / "run.json").is_file()
        self._surveys: dict[Path, BatchFollower] = {}
        self._lock = Lock()  # a survey remembers what it read
        if not self.is_single_run and not self.list_runs():
            raise UsageError(f"no run lies below {root}")

    def list_runs(self) -> list[RunRow]:
        """Every run as it stands; of a batch also those that have not begun."""
        found = {place.parent for place in find_run_folders(self.root)}
        if (self.root / "batch.json").is_file():
            found.add(self.root)
        with self._lock:
            for shelf in found - self._surveys.keys():
                self._surveys[shelf] = BatchFollower(shelf)
            return [
                RunRow(str((shelf / standing.name).relative_to(self.root)), standing)
                for shelf in sorted(found)
                for standing in self._surveys[shelf].refresh().runs
            ]

    def load_run(self, path: str) -> tuple[Run, str] | None:
        """A run by its path in the list, or the only one, read afresh, and its stamp; nothing else can be asked for."""
        place = self.root if self.is_single_run else self.root / path
        if place not in find_run_folders(self.root):
            return None
        now = _version_stamp(place)  # before anything is read: what comes later makes another
        folder = RunFolder(place)
        return Run(folder, folder.result), now


def _version_stamp(place: Path) -> str:
    """Differs whenever the page of the run would."""
    told = [int(is_locked(place / "run.lock"))]
    for name in RUN_FILES:
        with suppress(OSError):
            status = (place / name).stat()
            told += [status.st_size, status.st_mtime_ns]
    return "-".join(f"{part:x}" for part in told)
