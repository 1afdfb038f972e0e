"""Submissions to fathomnet: named categories and scores, in cells of a table."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pandas as pd
from mutation import mutated

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

RAISES = (InvalidSubmission,)
WEIGHT, SHORT = 20, 100
ANSWERS = b"id,categories,osd\na,1 2,0\nb,3,1\nc,4 5 6,0\nd,1,1\n"
SEEDS = [
    ANSWERS,
    b"id,categories,osd\na,1 2 3,0.5\nb,,1\nc,6 5 4,0e0\nd,1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20,.25\n",
]
WORDS = [
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

make = mutated(SEEDS, WORDS)


@contextmanager
def opened(room: Path) -> Iterator[tuple[Path, ModuleType]]:
    """The grader, and where answers and submissions lie."""
    (room / "answers.csv").write_bytes(ANSWERS)
    (room / "known.csv").write_text("category\n" + "".join(f"{number}\n" for number in range(1, 31)))
    pd.array(["a"], dtype="str")  # its allocator takes a gigabyte of addresses, before these are counted
    yield room, load_module_from_file(BUILTIN_TASKS_DIR / "fathomnet" / "grade.py")


def attempt(case: bytes, thing: tuple[Path, ModuleType]) -> None:
    room, grader = thing
    (room / "submission.csv").write_bytes(case)
    assert -0.5 <= grader.grade(room / "submission.csv", room) <= 1
