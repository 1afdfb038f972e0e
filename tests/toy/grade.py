"""The grader of the toy task: mean absolute error, without pandas, so that grading takes milliseconds."""

import csv
import math
from pathlib import Path

from mlagentbench.errors import InvalidSubmission

MAX_SUBMISSION_BYTES = 10_000


def grade(submission: Path, private: Path) -> float:
    """Return the mean absolute error of submission.csv."""
    if submission.stat().st_size > MAX_SUBMISSION_BYTES:
        raise InvalidSubmission(f"{submission.name} has {submission.stat().st_size:,} bytes")
    answers = read_values(private / "answers.csv")
    try:
        predicted = read_values(submission)
    except (ValueError, csv.Error) as error:
        raise InvalidSubmission(f"{submission.name} is not a csv file of two columns: {error}") from error
    if predicted.keys() != answers.keys():
        raise InvalidSubmission(f"{submission.name} does not have the ids 0 to 9")
    if not all(abs(value) < 1e100 for value in predicted.values()):
        raise InvalidSubmission(f"{submission.name} has values that are not usable numbers")
    return math.fsum(abs(predicted[id] - answers[id]) for id in answers) / len(answers)


def read_values(path: Path) -> dict[str, float]:
    """Return the values by id; every id must occur once."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file, strict=True)
    values = {id: float(value) for id, value in rows if header == ["id", "value"]}
    if len(values) < len(rows):
        raise ValueError("its header is wrong, or it repeats an id")
    return values
