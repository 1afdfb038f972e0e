"""Run-length masks of identify-contrails: refused, or exactly the pixels of the runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import ModuleType

from mutation import mutate_bytes

from mlagentbench.discovery import load_module_from_file
from mlagentbench.task import BUILTIN_TASKS_DIR

EXPECTED_ERRORS = (ValueError,)
CASES_PER_1000, SHORT_CASES = 90, 400
PIXELS = 256
SEEDS = [b"1 3 10 5 250 7", b"-", b"1 256", b"5 1 7 1 9 1"]
TOKENS = [
    b" ",
    b"0",
    b"-1",
    b"256",
    b"257",
    b"+3",
    b"1e2",
    b"\t",
    b"\xc2\xa0",
    "٣".encode(),
    b"-",
    b"999999999",
    b"4294967297",
]
mutate = mutate_bytes(SEEDS, TOKENS)


def make_case(random: Random) -> bytes:
    if random.random() < 0.5:
        return mutate(random)
    numbers = sorted(random.randrange(PIXELS + 3) for _ in range(random.randrange(12)))
    pairs = zip(numbers[::2], numbers[1::2], strict=False)
    return " ".join(f"{start} {end - start}" for start, end in pairs).encode()


@contextmanager
def open_fixture(folder: Path) -> Iterator[ModuleType]:
    """Load the grader."""
    yield load_module_from_file(BUILTIN_TASKS_DIR / "identify-contrails" / "grade.py")


def run_case(case: bytes, grader: ModuleType) -> None:
    text = case.decode("utf-8", "replace")
    mask = grader.decode_runs(text, PIXELS)
    assert mask.shape == (PIXELS,)
    numbers = [int(word) for word in text.split()] if text != "-" else []
    marked = {
        pixel
        for start, length in zip(numbers[::2], numbers[1::2], strict=True)
        for pixel in range(start, start + length)
    }
    assert {int(index) + 1 for index in mask.nonzero()[0]} == marked
