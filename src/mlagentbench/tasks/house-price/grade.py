"""Grades predicted sale prices."""

from pathlib import Path

from mlagentbench.grading.checks import read_answers, read_submission


def grade(submission: Path, private: Path) -> float:
    """Return the mean absolute error of the predicted sale prices, in dollars."""
    answers = read_answers(private / "answers.csv", id="Id", columns=["SalePrice"])
    predicted = read_submission(submission, id="Id", columns=["SalePrice"], like=answers)
    return float((predicted["SalePrice"] - answers["SalePrice"]).abs().mean())
