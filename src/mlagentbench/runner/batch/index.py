"""index.sqlite: results by the name of their run, for speed and for questions in SQL; the run folders are the truth."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from pydantic import ValidationError

from mlagentbench.records import Result

FileStamp = tuple[int, int, int]  # when result.json was written, its size, its inode
COLUMNS: tuple[str, ...] = (
    "task",
    "edition",
    "agent",
    "model",
    "seed",
    "ending",
    "score",
    "success",
    "valid",
    "steps",
    "seconds",
)
COLUMNS += ("tokens", "dollars")
CREATE_TABLE_SQL = f"CREATE TABLE IF NOT EXISTS results (name TEXT PRIMARY KEY, stamp TEXT, {', '.join(COLUMNS)}, record TEXT)"


class ResultIndex:
    """Whatever is wrong with it, it is made again; whoever cannot write it goes without."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._new: dict[str, tuple[FileStamp, Result]] = {}
        self._rows: dict[str, tuple[str, str]] = self._read()

    def _read(self) -> dict[str, tuple[str, str]]:
        if not self.path.is_file():
            return {}
        try:
            with closing(sqlite3.connect(self.path, timeout=1)) as database:
                rows = database.execute("SELECT name, stamp, record FROM results").fetchall()
        except sqlite3.OperationalError:  # somebody writes it, or it has no table yet
            return {}
        except sqlite3.DatabaseError:
            with suppress(OSError):
                self.path.unlink()
            return {}
        return {name: (stamp, record) for name, stamp, record in rows}

    def take(self, name: str, stamp: FileStamp) -> Result | None:
        """A result that is still the one on disk; each is asked for once."""
        found = self._rows.pop(name, None)
        if not found or found[0] != repr(stamp):
            return None
        with suppress(ValidationError):
            return Result.model_validate_json(found[1])
        return None

    def add(self, name: str, stamp: FileStamp, result: Result) -> None:
        """Note a result that was read from its folder."""
        self._new[name] = (stamp, result)

    def write(self) -> None:
        """Put what is new on disk, if the disk takes it."""
        if not self._new:
            return
        rows = [
            (name, repr(stamp), *(getattr(result, column) for column in COLUMNS), result.model_dump_json())
            for name, (stamp, result) in self._new.items()
        ]
        marks = ", ".join("?" * len(rows[0]))
        with (
            suppress(sqlite3.Error, OSError),
            closing(sqlite3.connect(self.path, timeout=1)) as database,
            database,
        ):
            database.execute(CREATE_TABLE_SQL)
            database.executemany(f"INSERT OR REPLACE INTO results VALUES ({marks})", rows)
        self._new.clear()
