"""The diff of two versions of a script with many lines, many of them equal."""

from pathlib import Path
from random import Random

from mlagentbench.actions.base import MAX_DIFF_CHARS, format_text_diff

EXPECTED_ERRORS = ()
CASES_PER_1000, SHORT_CASES = 10, 40


def make_case(random: Random) -> tuple[str, str]:
    distinct_lines = random.choice((2, 5, 30, 150, 1000))
    lines = random.choice((5, 50, 300, 300, 1000)) if random.random() < 0.98 else 20_000
    old = [f"{random.randrange(distinct_lines)}" for _ in range(lines)]
    new = (
        [line for line in old if random.random() < 0.9]
        if random.random() < 0.5
        else random.sample(old, len(old))
    )
    ends = ("\n", "\n", "\r\n", "\x0c", "\u2028", "")
    return random.choice(ends).join(old), random.choice(ends).join(new)


INTERLEAVED = [
    "\n".join(f"{number}\n{letter}" for number in range(10_000)) for letter in "ab"
]  # every second line differs
REGRESSION_CASES = [(INTERLEAVED[0], INTERLEAVED[1])]


def run_case(case: tuple[str, str], folder: Path) -> None:
    old, new = case
    change = format_text_diff(old, new, "old", "new")
    assert len(change) < MAX_DIFF_CHARS + 100
    assert change or old.splitlines() == new.splitlines()
