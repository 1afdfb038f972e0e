"""Grades predicted classes of images."""

from pathlib import Path

from mlagentbench.grading.checks import InvalidSubmission, read_answer_arrays, read_submission_arrays


def grade(submission: Path, private: Path) -> float:
    """Return the accuracy: the fraction of the hidden images whose class is correct."""
    answers = read_answer_arrays(private / "answers.csv", id="Id", columns=["label"])
    predicted = read_submission_arrays(submission, like=answers)["label"]
    invalid = predicted[(predicted % 1 != 0) | (predicted < 0) | (predicted > 9)]
    if len(invalid):
        raise InvalidSubmission(
            f"{submission.name}: {len(invalid):,} labels are not integers from 0 to 9,"
            f" for example {invalid[0]:g}"
        )
    return float((predicted == answers["label"]).mean())
