"""Grades predicted labels of film reviews."""

from pathlib import Path

import numpy as np

from mlagentbench.grading.checks import InvalidSubmission, read_answer_arrays, read_submission_arrays


def grade(submission: Path, private: Path) -> float:
    """Return the accuracy: the fraction of reviews whose label is correct."""
    answers = read_answer_arrays(private / "answers.csv", id="id", columns=["label"])
    predicted = read_submission_arrays(submission, like=answers)["label"]
    if len(invalid := predicted[~np.isin(predicted, [0, 1])]):
        raise InvalidSubmission(
            f"{submission.name}: {len(invalid):,} labels are neither 0 nor 1, for example {invalid[0]:g}"
        )
    return float((predicted == answers["label"]).mean())
