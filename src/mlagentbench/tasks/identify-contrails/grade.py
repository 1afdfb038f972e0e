"""Grades contrail masks."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlagentbench.grading.checks import InvalidSubmission, read_answers, read_texts

ID_COLUMN, MASK_COLUMN = "record_id", "encoded_pixels"


def grade(submission: Path, private: Path) -> float:
    """Return the global Dice over all pixels of all scenes; 0 if nothing is marked."""
    shape = json.loads((private / "shape.json").read_text())
    pixels = shape["height"] * shape["width"]
    answers = read_answers(private / "answers.csv", id=ID_COLUMN, columns=[MASK_COLUMN], text=True)
    submitted = read_texts(
        submission, id=ID_COLUMN, columns=[MASK_COLUMN], like=answers, mean_cell_bytes=2 * pixels
    )
    overlap = marked_total = 0
    for record_id, runs, true_runs in zip(
        answers.index, submitted[MASK_COLUMN], answers[MASK_COLUMN], strict=True
    ):
        try:
            marked = decode_runs(runs, pixels)
        except ValueError as error:
            raise InvalidSubmission(f"{submission.name}: {ID_COLUMN} {record_id}: {error}") from error
        true_mask = decode_runs(true_runs, pixels)
        overlap += int((marked & true_mask).sum())
        marked_total += int(marked.sum() + true_mask.sum())
    return 2 * overlap / marked_total


def decode_runs(text: str, pixels: int) -> NDArray[np.bool_]:
    """Decode runs into a mask; the ValueError of a malformed text says what is wrong."""
    mask = np.zeros(pixels, bool)
    if text == "-":
        return mask
    numbers = text.split()
    if not numbers:
        raise ValueError("the cell is empty; write - for a mask without pixels")
    if invalid := [word for word in numbers if not (word.isascii() and word.isdigit() and len(word) < 10)]:
        raise ValueError(f"{invalid[0][:30]!r} is not a positive integer")
    if len(numbers) % 2:
        raise ValueError(f"{len(numbers):,} numbers cannot be read as pairs of start and length")
    starts, lengths = np.array(numbers, np.int64).reshape(-1, 2).T
    ends = starts + lengths
    if lengths.min() < 1:
        raise ValueError("a run has length 0")
    if starts.min() < 1 or ends.max() > pixels + 1:
        raise ValueError(f"a run leaves the image, whose pixels are numbered 1 to {pixels:,}")
    if (starts[1:] <= starts[:-1]).any():
        raise ValueError("the runs are not in increasing order")
    if (starts[1:] < ends[:-1]).any():
        raise ValueError("two runs overlap")
    for start, end in zip(starts, ends, strict=True):
        mask[start - 1 : end - 1] = True
    return mask
