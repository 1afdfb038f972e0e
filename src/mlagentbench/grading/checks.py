"""The API for a task's grade.py: readers and checks that reject malformed submissions with a clear message.

This is the only module of the package that a task may import.
"""

import csv
import encodings.utf_8_sig  # noqa: F401 - loaded here once, and not by every fork that reads a submission
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mlagentbench.errors import InvalidSubmission
from mlagentbench.grading.script_rules import forbidden_imports, numbers_above

if TYPE_CHECKING:
    import pandas as pd

    from mlagentbench.grading.program import Program
    from mlagentbench.grading.relative_timing import Question, SpeedComparison

__all__ = [
    "AnswerArrays",
    "InvalidSubmission",
    "Program",
    "Question",
    "SpeedComparison",
    "forbidden_imports",
    "numbers_above",
    "read_answer_arrays",
    "read_answers",
    "read_submission",
    "read_submission_arrays",
    "read_texts",
]

FloatArray = npt.NDArray[np.float64]

# Imported on first use. Each submission that is a table is graded in a fork of a process, and a fork takes
# the longer the more the process has loaded: with pandas three times as long as without.
_MODULE_BY_NAME = {"Program": "program", "Question": "relative_timing", "SpeedComparison": "relative_timing"}

MAX_NUMBER_CELL_BYTES = 64  # no valid cell with a number is longer
MAX_ABS_VALUE = 1e100  # above it a sum of squares overflows, which would look like a fault of the grader
EXTRA_ROWS = 1000  # by which a file may be larger than its rows need, for blank lines and the header


def __getattr__(name: str) -> object:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"mlagentbench.grading.{_MODULE_BY_NAME[name]}"), name)


@dataclass(frozen=True)
class AnswerArrays:
    """Hidden numbers: `answers["price"]` is the array of a column.

    Attributes:
        id: The name of the id column.
        ids: The ids, as text.
        columns: An array of numbers by the name of its column, in the order of the ids.
    """

    id: str
    ids: list[str]
    columns: dict[str, FloatArray]

    def __getitem__(self, column: str) -> FloatArray:
        return self.columns[column]


def read_answer_arrays(path: Path, id: str, columns: Sequence[str]) -> AnswerArrays:
    """Read hidden numbers, which are trusted, without pandas.

    Args:
        path: A csv file in the task's private folder.
        id: The name of the id column.
        columns: The names of the answer columns.

    Returns:
        The ids and the numbers, in the order of the file.
    """
    return _read_answer_arrays(path, id, tuple(columns))


@cache
def _read_answer_arrays(path: Path, id: str, columns: tuple[str, ...]) -> AnswerArrays:
    """The arrays of a file. The fork server reads it once, and the forks find it in their memory."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    numbers = {name: np.array([float(row[name]) for row in rows]) for name in columns}
    for array in numbers.values():
        array.flags.writeable = False
    return AnswerArrays(id, [row[id] for row in rows], numbers)


def read_submission_arrays(path: Path, like: AnswerArrays) -> dict[str, FloatArray]:
    """Read submitted numbers from a csv file, without pandas: much faster where many submissions are graded.

    The file must have the id column and the columns of `like`, in this order, and every id of `like` once,
    in any order. Every cell must be a finite number.

    Args:
        path: The submission, as `grade` receives it.
        like: The answers, from `read_answer_arrays`.

    Returns:
        The submitted numbers by column, in the order of `like`.

    Raises:
        InvalidSubmission: If the file is missing, too large or malformed, or its ids are not those of `like`.
    """
    numbers = _read_numbers(path, like.id, list(like.columns), like.ids)
    return {column: np.array(values) for column, values in numbers.items()}


def read_answers(path: Path, id: str, columns: Sequence[str], text: bool = False) -> "pd.DataFrame":
    """Read the hidden answers, which are trusted.

    Args:
        path: A csv file in the task's private folder.
        id: The name of the id column; ids are read as text.
        columns: The names of the answer columns.
        text: Read the answers as text instead of numbers.

    Returns:
        The answer columns, indexed by id.
    """
    return _read_answers(path, id, text)[list(columns)]


@cache
def _read_answers(path: Path, id: str, text: bool) -> "pd.DataFrame":
    import pandas as pd

    return pd.read_csv(path, dtype=str if text else {id: str}, keep_default_na=not text).set_index(id)


def read_submission(path: Path, id: str, columns: Sequence[str], like: "pd.DataFrame") -> "pd.DataFrame":
    """Read submitted numbers from a csv file.

    The file must have exactly the columns `id` and `columns`, in this order, and every id of `like` once, in
    any order. Every cell must be a finite number.

    Args:
        path: The submission, as `grade` receives it.
        id: The name of the id column.
        columns: The names of the columns with numbers.
        like: The answers, from `read_answers`.

    Returns:
        The submitted numbers, indexed by id, in the order of `like`.

    Raises:
        InvalidSubmission: If the file is missing, too large or malformed, or its ids are not those of `like`.
    """
    import pandas as pd

    return pd.DataFrame(_read_numbers(path, id, columns, like.index.tolist()), index=like.index)


def read_texts(
    path: Path, id: str, columns: Sequence[str], like: "pd.DataFrame", mean_cell_bytes: int
) -> "pd.DataFrame":
    """Read submitted text from a csv file; like `read_submission`, but cells may hold any text.

    Args:
        path: The submission, as `grade` receives it.
        id: The name of the id column.
        columns: The names of the columns with text.
        like: The answers, from `read_answers`.
        mean_cell_bytes: The average number of bytes per cell above which the file is rejected as too large.

    Returns:
        The submitted text, without surrounding whitespace, indexed by id, in the order of `like`.

    Raises:
        InvalidSubmission: If the file is missing, too large or malformed, or its ids are not those of `like`.
    """
    import pandas as pd

    cells = _read_columns(path, id, columns, like.index.tolist(), mean_cell_bytes)
    return pd.DataFrame(cells, index=like.index, dtype=str)


def _read_numbers(path: Path, id: str, columns: Sequence[str], expected: list[str]) -> dict[str, list[float]]:
    """Return the submitted numbers by column, in the order of the expected ids."""
    numbers: dict[str, list[float]] = {}
    for column, cells in _read_columns(path, id, columns, expected, MAX_NUMBER_CELL_BYTES).items():
        values = [_parse_number(cell) for cell in cells]
        if wrong := [
            cell for cell, value in zip(cells, values, strict=True) if not abs(value) < MAX_ABS_VALUE
        ]:
            count = f"{len(wrong):,} values of {column}"
            raise InvalidSubmission(
                f"{path.name} has {count} that are not usable numbers: {_format_examples(wrong)}"
            )
        numbers[column] = values
    return numbers


def _read_columns(
    path: Path, id: str, columns: Sequence[str], expected: list[str], cell_bytes: int
) -> dict[str, list[str]]:
    """Return the submitted cells by column, in the order of the expected ids; each must occur once."""
    table = _read_table(path, [id, *columns], len(expected), cell_bytes)
    ids, *cells = ([text.strip() for text in column] for column in zip(*table, strict=True))
    rows = {name: row for row, name in enumerate(ids)}
    if len(rows) < len(table):
        repeated = [name for name, count in Counter(ids).items() if count > 1]
        raise InvalidSubmission(f"{path.name} repeats {len(repeated):,} {id}: {_format_examples(repeated)}")
    if unknown := sorted(rows.keys() - set(expected)):
        raise InvalidSubmission(f"{path.name} has {len(unknown):,} unknown {id}: {_format_examples(unknown)}")
    if missing := sorted(set(expected) - rows.keys()):
        raise InvalidSubmission(f"{path.name} lacks {len(missing):,} {id}: {_format_examples(missing)}")
    if ids != expected:
        order = [rows[name] for name in expected]
        cells = [[column[row] for row in order] for column in cells]
    return dict(zip(columns, cells, strict=True))


def _read_table(path: Path, columns: list[str], row_count: int, cell_bytes: int) -> list[list[str]]:
    """Return the rows of the csv file as text, without the header; the size is checked before the content."""
    if not path.is_file():
        raise InvalidSubmission(f"{path.name} is missing")
    size = path.stat().st_size
    if size == 0:
        raise InvalidSubmission(f"{path.name} is empty")
    if size > (max_bytes := (row_count + EXTRA_ROWS) * len(columns) * cell_bytes):
        need = f"{row_count:,} predictions need at most {max_bytes:,}"
        raise InvalidSubmission(f"{path.name} has {size:,} bytes; {need}")
    table, count = [], 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = (row for row in csv.reader(file, strict=True) if row)  # skips blank lines
            header = [name.strip() for name in next(rows, [])]
            if header != columns:
                names = ", ".join(columns)
                raise InvalidSubmission(
                    f"{path.name} must have the columns {names}; it has: {_format_examples(header)}"
                )
            for count, row in enumerate(rows, 1):
                if len(row) != len(columns):
                    raise InvalidSubmission(f"{path.name}: row {count:,} does not have {len(columns)} cells")
                # A small file can have very many rows, which would not fit into memory.
                if count <= row_count:
                    table.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidSubmission(f"{path.name} is not a csv file in UTF-8: {error}") from error
    if count != row_count:
        raise InvalidSubmission(f"{path.name} has {count:,} rows; there must be {row_count:,}")
    return table


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _format_examples(values: Sequence[str]) -> str:
    """Quote up to three values for a message."""
    examples = [repr(value[:30]) for value in values[:3]]
    return (", ".join(examples) or "none") + (", ..." if len(values) > 3 else "")
