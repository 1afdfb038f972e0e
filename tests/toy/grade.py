"""Toy: mean absolute error, without pandas, so that hundreds of tests are graded in milliseconds."""

import csv
import math
from pathlib import Path

from mlagentbench.errors import InvalidSubmission

LARGEST = 10_000  # bytes of a submission


def grade(submission: Path, private: Path) -> float:
    """Score submission.csv against the hidden values."""
    if submission.stat().st_size > LARGEST:
        raise InvalidSubmission(f"{submission.name} has {submission.stat().st_size:,} bytes")
    answers = read(private / "answers.csv")
    try:
        predicted = read(submission)
    except (ValueError, csv.Error) as error:
        raise InvalidSubmission(f"{submission.name} is not a csv file of two columns: {error}") from error
    if predicted.keys() != answers.keys():
        raise InvalidSubmission(f"{submission.name} does not have the ids 0 to 9")
    if not all(abs(value) < 1e100 for value in predicted.values()):
        raise InvalidSubmission(f"{submission.name} has values that are not usable numbers")
    return math.fsum(abs(predicted[each] - answers[each]) for each in answers) / len(answers)


def read(path: Path) -> dict[str, float]:
    """The values by id, every id once."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file, strict=True)
    values = {id: float(value) for id, value in rows if header == ["id", "value"]}
    if len(values) < len(rows):
        raise ValueError("its header is wrong, or it repeats an id")
    return values
