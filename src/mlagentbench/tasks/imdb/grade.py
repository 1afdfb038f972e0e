"""Grades predicted labels of film reviews."""

from pathlib import Path

from mlagentbench.grading.checks import InvalidSubmission, read_answers, read_submission


def grade(submission: Path, private: Path) -> float:
    """Return the accuracy: the fraction of reviews whose label is correct."""
    answers = read_answers(private / "answers.csv", id="id", columns=["label"])
    predicted = read_submission(submission, id="id", columns=["label"], like=answers)
    if len(invalid := predicted.loc[~predicted["label"].isin([0, 1]), "label"]):
        raise InvalidSubmission(
            f"{submission.name}: {len(invalid):,} labels are neither 0 nor 1, for example {invalid.iloc[0]:g}"
        )
    return float((predicted["label"] == answers["label"]).mean())
