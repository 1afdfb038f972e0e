"""Submissions to fathomnet: a table with category lists and scores."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pandas as pd
from mutation import mutate_bytes

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

EXPECTED_ERRORS = (InvalidSubmission,)
CASES_PER_1000, SHORT_CASES = 20, 100
ANSWERS = b"id,categories,osd\na,1 2,0\nb,3,1\nc,4 5 6,0\nd,1,1\n"
SEEDS = [
    ANSWERS,
    b"id,categories,osd\na,1 2 3,0.5\nb,,1\nc,6 5 4,0e0\n"
    b"d,1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20,.25\n",
]
TOKENS = [
    b" ",
    b",",
    b"\n",
    b'"',
    b"1 ",
    b"21",
    b"1 1",
    b"nan",
    b"1.0000001",
    b"-0.0",
    b"inf",
    b"a,",
    "٣".encode(),
    b"\0",
]

make_case = mutate_bytes(SEEDS, TOKENS)


@contextmanager
def open_fixture(folder: Path) -> Iterator[tuple[Path, ModuleType]]:
    """Load the grader and write the answers."""
    (folder / "answers.csv").write_bytes(ANSWERS)
    (folder / "known.csv").write_text("category\n" + "".join(f"{number}\n" for number in range(1, 31)))
    pd.array(
        ["a"], dtype="str"
    )  # its allocator reserves a gigabyte of addresses; do it before they are counted
    yield folder, load_module_from_file(BUILTIN_TASKS_DIR / "fathomnet" / "grade.py")


def run_case(case: bytes, fixture: tuple[Path, ModuleType]) -> None:
    folder, grader = fixture
    (folder / "submission.csv").write_bytes(case)
    assert -0.5 <= grader.grade(folder / "submission.csv", folder) <= 1
