"""Grades predictions of who was transported."""

from pathlib import Path

import numpy as np

from mlagentbench.grading.checks import InvalidSubmission, read_answer_arrays, read_submission_arrays


def grade(submission: Path, private: Path) -> float:
    """Return the accuracy: the fraction of passengers whose label is predicted correctly."""
    answers = read_answer_arrays(private / "answers.csv", id="PassengerId", columns=["Transported"])
    predicted = read_submission_arrays(submission, like=answers)["Transported"]
    if len(invalid := predicted[~np.isin(predicted, [0, 1])]):
        raise InvalidSubmission(
            f"{submission.name}: {len(invalid):,} values of Transported are neither 0 nor 1,"
            f" for example {invalid[0]:g}"
        )
    return float((predicted == answers["Transported"]).mean())
