"""Toy: mean absolute error."""

from pathlib import Path

from mlagentbench.grading.checks import read_answers, read_submission


def grade(submission: Path, private: Path) -> float:
    """Score submission.csv against the hidden values."""
    answers = read_answers(private / "answers.csv", id="id", columns=["value"])
    predicted = read_submission(submission, id="id", columns=["value"], like=answers)
    return float((predicted["value"] - answers["value"]).abs().mean())
