"""What a task's grade.py may import: readers that refuse every malformed submission with a sentence."""

import csv
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from mlagentbench.errors import InvalidSubmission
from mlagentbench.grading.program import Program
from mlagentbench.grading.relative_timing import Question, Race
from mlagentbench.grading.script_rules import forbidden_imports, numbers_above

__all__ = [
    "InvalidSubmission",
    "Program",
    "Question",
    "Race",
    "forbidden_imports",
    "numbers_above",
    "read_answers",
    "read_submission",
    "read_texts",
]

MAX_NUMBER_CELL_BYTES = 64  # bytes that one cell of an honest csv never exceeds
MAX_ABS_VALUE = 1e100  # above it a sum of squares overflows, which would look like a fault of the grader


def read_answers(path: Path, id: str, columns: Sequence[str], text: bool = False) -> pd.DataFrame:
    """The hidden answers, by id; as numbers, or as `text`."""
    table = pd.read_csv(path, dtype=str if text else {id: str}, keep_default_na=not text).set_index(id)
    return table[list(columns)]


def read_submission(path: Path, id: str, columns: Sequence[str], like: pd.DataFrame) -> pd.DataFrame:
    """The submitted numbers by id, in the order of the answers: every id once, every cell a finite number."""
    rows = _read_rows(path, id, columns, like, MAX_NUMBER_CELL_BYTES)
    numbers: dict[str, list[float]] = {}
    for place, column in enumerate(columns):
        values = [_parse_number(row[place]) for row in rows]
        if wrong := [
            row[place] for row, value in zip(rows, values, strict=True) if not abs(value) < MAX_ABS_VALUE
        ]:
            raise InvalidSubmission(
                f"{path.name} has {len(wrong):,} values of {column} that are not usable numbers: {_format_examples(wrong)}"
            )
        numbers[column] = values
    return pd.DataFrame(numbers, index=like.index)


def read_texts(path: Path, id: str, columns: Sequence[str], like: pd.DataFrame, cell: int) -> pd.DataFrame:
    """The submitted cells as text by id, in the order of the answers, where a cell has about `cell` bytes at most."""
    rows = _read_rows(path, id, columns, like, cell)
    cells = {column: [row[place] for row in rows] for place, column in enumerate(columns)}
    return pd.DataFrame(cells, index=like.index, dtype=str)


def _read_rows(path: Path, id: str, columns: Sequence[str], like: pd.DataFrame, cell: int) -> list[list[str]]:
    """The submitted cells without their ids, in the order of the answers, which have every id once."""
    table = _read_table(path, [id, *columns], len(like), cell)
    rows = {row[0].strip(): [text.strip() for text in row[1:]] for row in table}
    known = like.index.tolist()
    if len(rows) < len(table):
        ids = Counter(row[0].strip() for row in table)
        repeated = [each for each, count in ids.items() if count > 1]
        raise InvalidSubmission(f"{path.name} repeats {len(repeated):,} {id}: {_format_examples(repeated)}")
    if unknown := sorted(rows.keys() - set(known)):
        raise InvalidSubmission(f"{path.name} has {len(unknown):,} unknown {id}: {_format_examples(unknown)}")
    if missing := sorted(set(known) - rows.keys()):
        raise InvalidSubmission(f"{path.name} lacks {len(missing):,} {id}: {_format_examples(missing)}")
    return [rows[each] for each in known]


def _read_table(path: Path, columns: list[str], rows: int, cell: int) -> list[list[str]]:
    """The rows of the csv as text, below its header; its size is looked at before its content."""
    if not path.is_file():
        raise InvalidSubmission(f"{path.name} is missing")
    size = path.stat().st_size
    if size == 0:
        raise InvalidSubmission(f"{path.name} is empty")
    if size > (most := (rows + 1000) * len(columns) * cell):
        raise InvalidSubmission(f"{path.name} has {size:,} bytes; {rows:,} predictions need at most {most:,}")
    table, count = [], 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            found = (row for row in csv.reader(file, strict=True) if row)  # blank lines are no rows
            header = [name.strip() for name in next(found, [])]
            if header != columns:
                wanted = ", ".join(columns)
                raise InvalidSubmission(
                    f"{path.name} must have the columns {wanted}; it has: {_format_examples(header)}"
                )
            for count, row in enumerate(found, 1):
                if len(row) != len(columns):
                    raise InvalidSubmission(f"{path.name}: row {count:,} does not have {len(columns)} cells")
                if count <= rows:  # a small file can hold very many rows, which would not fit into memory
                    table.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidSubmission(f"{path.name} is not a csv file in UTF-8: {error}") from error
    if count != rows:
        raise InvalidSubmission(f"{path.name} has {count:,} rows; there must be {rows:,}")
    return table


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _format_examples(values: Sequence[str]) -> str:
    """A few values, for a message."""
    few = [repr(value[:30]) for value in values[:3]]
    return (", ".join(few) or "none") + (", ..." if len(values) > 3 else "")
