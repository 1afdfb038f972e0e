"""Grades predicted labels of papers."""

from pathlib import Path

from mlagentbench.grading.checks import InvalidSubmission, read_answer_arrays, read_submission_arrays


def grade(submission: Path, private: Path) -> float:
    """Return the accuracy: the fraction of the hidden papers whose label is correct."""
    answers = read_answer_arrays(private / "answers.csv", id="node", columns=["label"])
    predicted = read_submission_arrays(submission, like=answers)["label"]
    invalid = predicted[(predicted % 1 != 0) | (predicted < 0)]
    if len(invalid):
        raise InvalidSubmission(
            f"{submission.name}: {len(invalid):,} labels are not integers from 0, for example {invalid[0]:g}"
        )
    return float((predicted == answers["label"]).mean())
