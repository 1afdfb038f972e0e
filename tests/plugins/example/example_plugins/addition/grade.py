"""Mean absolute error of the sums."""

from pathlib import Path

from mlagentbench.grading.checks import read_answers, read_submission


def grade(submission: Path, private: Path) -> float:
    """Return the mean absolute error of submission.csv."""
    answers = read_answers(private / "answers.csv", "id", ["sum"])
    submitted = read_submission(submission, "id", ["sum"], like=answers)
    return float((submitted["sum"] - answers["sum"]).abs().mean())
