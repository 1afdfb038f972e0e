"""Grades predictions of y."""

from pathlib import Path

import numpy as np

from mlagentbench.grading.checks import read_answer_arrays, read_submission_arrays


def grade(submission: Path, private: Path) -> float:
    """Mean absolute error."""
    answers = read_answer_arrays(private / "answers.csv", id="id", columns=["y"])
    predicted = read_submission_arrays(submission, like=answers)
    return float(np.abs(predicted["y"] - answers["y"]).mean())
