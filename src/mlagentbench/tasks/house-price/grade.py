"""Grades predicted sale prices."""

from pathlib import Path

import numpy as np

from mlagentbench.grading.checks import read_answer_arrays, read_submission_arrays


def grade(submission: Path, private: Path) -> float:
    """Return the mean absolute error of the predicted sale prices, in dollars."""
    answers = read_answer_arrays(private / "answers.csv", id="Id", columns=["SalePrice"])
    predicted = read_submission_arrays(submission, like=answers)
    return float(np.abs(predicted["SalePrice"] - answers["SalePrice"]).mean())
