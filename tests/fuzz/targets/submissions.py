"""Submitted tables, read by the shared readers and the grader of house-price."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from mutation import mutate_bytes

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

EXPECTED_ERRORS = (InvalidSubmission,)
CASES_PER_1000, SHORT_CASES = 40, 150
ROWS = b"".join(b"%d,%d.5\r\n" % (number, 1000 * number) for number in range(1, 13))
SEEDS = [b"Id,SalePrice\r\n" + ROWS, b'\xef\xbb\xbf"Id","SalePrice"\n' + ROWS.replace(b"\r", b"")]
TOKENS = [
    *(
        b",",
        b"\n",
        b"\r\n",
        b'"',
        b'""',
        b";",
        b"\t",
        b"1,",
        b"nan",
        b"inf",
        b"1e99",
        b"1e101",
        b"-0",
        b"1_0",
        b"0x1",
    ),
    *(
        b"\xef\xbb\xbf",
        "٣".encode(),
        "\u2028".encode(),
        b"Id",
        b"SalePrice",
        b"\0",
        b"=1+1",
        b"None",
        b"NA",
        b" ",
    ),
]

make_case = mutate_bytes(SEEDS, TOKENS)


@contextmanager
def open_fixture(folder: Path) -> Iterator[tuple[Path, object]]:
    """Load the grader of house-price and write the answers."""
    (folder / "answers.csv").write_bytes(SEEDS[0].replace(b"\r", b""))
    pd.array(
        ["a"], dtype="str"
    )  # its allocator reserves a gigabyte of addresses; do it before they are counted
    yield folder, load_module_from_file(BUILTIN_TASKS_DIR / "house-price" / "grade.py")


def run_case(case: bytes, fixture: tuple[Path, object]) -> None:
    folder, grader = fixture
    (folder / "submission.csv").write_bytes(case)
    try:
        score = grader.grade(folder / "submission.csv", folder)  # type: ignore[attr-defined]
    except InvalidSubmission as error:
        assert "\n" not in str(error) and len(str(error)) < 1000, str(error)
        raise
    assert 0 <= score < 1e101
