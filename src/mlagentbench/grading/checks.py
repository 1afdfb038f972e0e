"""What a task's grade.py may import: readers that refuse every malformed submission with a sentence."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from mlagentbench.errors import InvalidSubmission
from mlagentbench.grading.protocol import Program, forbidden_imports

__all__ = ["InvalidSubmission", "Program", "forbidden_imports", "read_answers", "read_submission"]

CELL = 64  # bytes that one cell of an honest csv never exceeds


def read_answers(path: Path, id: str, columns: Sequence[str]) -> pd.DataFrame:
    """The hidden answers, by id."""
    table = pd.read_csv(path, dtype={id: str}).set_index(id)
    return table[list(columns)]


def read_submission(path: Path, id: str, columns: Sequence[str], like: pd.DataFrame) -> pd.DataFrame:
    """The submitted numbers by id, in the order of the answers: every id once, every cell a finite number."""
    wanted = [id, *columns]
    table = _text_table(path, wanted, rows=len(like))
    ids = table[id].str.strip()
    if ids.duplicated().any():
        raise InvalidSubmission(f"{path.name} repeats the {id} {_shown(ids[ids.duplicated()])}")
    if unknown := set(ids) - set(like.index):
        raise InvalidSubmission(f"{path.name} has {len(unknown):,} unknown {id}: {_shown(sorted(unknown))}")
    if missing := set(like.index) - set(ids):
        raise InvalidSubmission(f"{path.name} lacks {len(missing):,} {id}: {_shown(sorted(missing))}")
    numbers = pd.DataFrame(index=ids)
    for column in columns:
        values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=float)
        wrong = ~np.isfinite(values)
        if wrong.any():
            raise InvalidSubmission(
                f"{path.name} has {wrong.sum():,} values of {column} that are not finite numbers:"
                f" {_shown(table[column][wrong])}"
            )
        numbers[column] = values
    return numbers.loc[like.index]


def _text_table(path: Path, columns: list[str], rows: int) -> pd.DataFrame:
    """The csv as text; its size is looked at before its content."""
    if not path.is_file():
        raise InvalidSubmission(f"{path.name} is missing")
    size = path.stat().st_size
    if size == 0:
        raise InvalidSubmission(f"{path.name} is empty")
    if size > (most := (rows + 1000) * len(columns) * CELL):
        raise InvalidSubmission(f"{path.name} has {size:,} bytes; {rows:,} predictions need at most {most:,}")
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig", index_col=False)
    except (ValueError, pd.errors.ParserError) as error:
        raise InvalidSubmission(f"{path.name} is not a csv file: {str(error)[:200]}") from error
    if list(table.columns) != columns:
        found = ", ".join(str(column)[:40] for column in table.columns[:10])
        raise InvalidSubmission(f"{path.name} must have the columns {', '.join(columns)}; it has: {found}")
    if len(table) != rows:
        raise InvalidSubmission(f"{path.name} has {len(table):,} rows; there must be {rows:,}")
    return table


def _shown(values: Sequence[str] | pd.Series) -> str:
    """A few values, for a message."""
    few = [repr(str(value)[:30]) for value in list(values)[:3]]
    return ", ".join(few) + (", ..." if len(values) > 3 else "")
