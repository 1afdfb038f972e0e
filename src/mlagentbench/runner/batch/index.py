"""index.sqlite: a cache of results by run name, which can also be queried with SQL.

The run folders are authoritative. The index can be deleted at any time and is rebuilt.
"""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from pydantic import ValidationError

from mlagentbench.records import Result

FileStamp = tuple[int, int, int]  # modification time in ns, size and inode of result.json
COLUMNS = (
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
    "tokens",
    "dollars",
)
CREATE_TABLE_SQL = (
    "CREATE TABLE IF NOT EXISTS results"
    f" (name TEXT PRIMARY KEY, stamp TEXT, {', '.join(COLUMNS)}, record TEXT)"
)


class ResultIndex:
    """A damaged index is deleted and rebuilt. If it cannot be written, everything works without it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: dict[str, tuple[FileStamp, Result]] = {}
        self._rows: dict[str, tuple[str, str]] = self._read()

    def _read(self) -> dict[str, tuple[str, str]]:
        if not self.path.is_file():
            return {}
        try:
            with closing(sqlite3.connect(self.path, timeout=1)) as database:
                rows = database.execute("SELECT name, stamp, record FROM results").fetchall()
        except sqlite3.OperationalError:  # another process is writing it, or it has no table yet
            return {}
        except sqlite3.DatabaseError:
            with suppress(OSError):
                self.path.unlink()
            return {}
        return {name: (stamp, record) for name, stamp, record in rows}

    def take(self, name: str, stamp: FileStamp) -> Result | None:
        """Remove and return the result of a run, or None if the file on disk is another one by now."""
        row = self._rows.pop(name, None)
        if not row or row[0] != repr(stamp):
            return None
        with suppress(ValidationError):
            return Result.model_validate_json(row[1])
        return None

    def add(self, name: str, stamp: FileStamp, result: Result) -> None:
        """Add a result that was read from its run folder; `write` stores it."""
        self._pending[name] = (stamp, result)

    def write(self) -> None:
        """Write the added results to disk. Errors are ignored."""
        if not self._pending:
            return
        rows = [
            (name, repr(stamp), *(getattr(result, column) for column in COLUMNS), result.model_dump_json())
            for name, (stamp, result) in self._pending.items()
        ]
        placeholders = ", ".join("?" * len(rows[0]))
        with (
            suppress(sqlite3.Error, OSError),
            closing(sqlite3.connect(self.path, timeout=1)) as database,
            database,
        ):
            database.execute(CREATE_TABLE_SQL)
            database.executemany(f"INSERT OR REPLACE INTO results VALUES ({placeholders})", rows)
        self._pending.clear()
