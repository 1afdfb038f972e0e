"""Grades masks of contrails."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlagentbench.grading.checks import InvalidSubmission, read_answers, read_texts

ID, COLUMN = "record_id", "encoded_pixels"


def grade(submission: Path, private: Path) -> float:
    """Global Dice: twice the pixels that are marked rightly, by those marked in either; 0 if nothing is marked."""
    shape = json.loads((private / "shape.json").read_text())
    pixels = shape["height"] * shape["width"]
    answers = read_answers(private / "answers.csv", id=ID, columns=[COLUMN], text=True)
    given = read_texts(submission, id=ID, columns=[COLUMN], like=answers, cell=2 * pixels)
    both = either = 0
    for name, runs, true_runs in zip(answers.index, given[COLUMN], answers[COLUMN], strict=True):
        try:
            marked = decode(runs, pixels)
        except ValueError as error:
            raise InvalidSubmission(f"{submission.name}: {ID} {name}: {error}") from error
        true = decode(true_runs, pixels)
        both += int((marked & true).sum())
        either += int(marked.sum() + true.sum())
    return 2 * both / either


def decode(text: str, pixels: int) -> NDArray[np.bool_]:
    """Which pixels the runs mark; a ValueError says what is wrong with them."""
    mask = np.zeros(pixels, bool)
    if text == "-":
        return mask
    words = text.split()
    if not words:
        raise ValueError("the cell is empty; a mask without pixels is written -")
    if wrong := [word for word in words if not (word.isascii() and word.isdigit() and len(word) < 10)]:
        raise ValueError(f"{wrong[0][:30]!r} is not a whole number of pixels")
    if len(words) % 2:
        raise ValueError(f"{len(words):,} numbers are not pairs of start and length")
    starts, lengths = np.array(words, np.int64).reshape(-1, 2).T
    ends = starts + lengths
    if lengths.min() < 1:
        raise ValueError("a run has no length")
    if starts.min() < 1 or ends.max() > pixels + 1:
        raise ValueError(f"a run leaves the image, whose pixels are 1 to {pixels:,}")
    if (starts[1:] <= starts[:-1]).any():
        raise ValueError("the runs are not in order")
    if (starts[1:] < ends[:-1]).any():
        raise ValueError("two runs overlap")
    for start, end in zip(starts, ends, strict=True):
        mask[start - 1 : end - 1] = True
    return mask
