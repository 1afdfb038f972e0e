"""Grades predictions of y."""

from pathlib import Path

from mlagentbench.grading.checks import read_answers, read_submission


def grade(submission: Path, private: Path) -> float:
    """Mean absolute error."""
    answers = read_answers(private / "answers.csv", id="id", columns=["y"])
    predicted = read_submission(submission, id="id", columns=["y"], like=answers)
    return float((predicted["y"] - answers["y"]).abs().mean())
