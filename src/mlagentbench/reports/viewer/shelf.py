"""The runs below a folder as they are now: how each stands, and each to be read again."""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote

from mlagentbench.errors import UsageError
from mlagentbench.locks import held
from mlagentbench.reports.runs import Run, places
from mlagentbench.runner.batch.standing import Standing
from mlagentbench.runner.batch.survey import Survey
from mlagentbench.runner.folder import RunFolder

TRACES = ("run.json", "trace.jsonl", "model_calls.jsonl", "result.json", "grades.jsonl", "judged.json")


class Row(NamedTuple):
    """A run in the list, by its path below the folder."""

    path: str
    standing: Standing

    @property
    def link(self) -> str:
        """Its page; the name of a folder need not be UTF-8."""
        return f"/run/{quote(os.fsencode(self.path))}"


class Shelf:
    """A run, a batch, or a folder of those."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"there is no folder {root}")
        self.root = root.resolve()
        self.single = (root / "run.json").is_file()
        self._surveys: dict[Path, Survey] = {}
        self._lock = Lock()  # a survey remembers what it read
        if not self.single and not self.rows():
            raise UsageError(f"no run lies below {root}")

    def rows(self) -> list[Row]:
        """Every run as it stands; of a batch also those that have not begun."""
        found = {place.parent for place in places(self.root)}
        if (self.root / "batch.json").is_file():
            found.add(self.root)
        with self._lock:
            for shelf in found - self._surveys.keys():
                self._surveys[shelf] = Survey(shelf)
            return [
                Row(str((shelf / standing.name).relative_to(self.root)), standing)
                for shelf in sorted(found)
                for standing in self._surveys[shelf].look().standings
            ]

    def run(self, path: str) -> tuple[Run, str] | None:
        """A run by its path in the list, or the only one, read afresh, and its stamp; nothing else can be asked for."""
        place = self.root if self.single else self.root / path
        if place not in places(self.root):
            return None
        now = _stamp(place)  # before anything is read: what comes later makes another
        folder = RunFolder(place)
        return Run(folder, folder.result), now


def _stamp(place: Path) -> str:
    """Differs whenever the page of the run would."""
    told = [int(held(place / "run.lock"))]
    for name in TRACES:
        with suppress(OSError):
            status = (place / name).stat()
            told += [status.st_size, status.st_mtime_ns]
    return "-".join(f"{part:x}" for part in told)
