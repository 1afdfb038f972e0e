"""Grades predicted labels of film reviews."""

from pathlib import Path

from mlagentbench.grading.checks import InvalidSubmission, read_answers, read_submission


def grade(submission: Path, private: Path) -> float:
    """The share of reviews whose label is right."""
    answers = read_answers(private / "answers.csv", id="id", columns=["label"])
    predicted = read_submission(submission, id="id", columns=["label"], like=answers)
    if len(wrong := predicted.loc[~predicted["label"].isin([0, 1]), "label"]):
        raise InvalidSubmission(
            f"{submission.name} has {len(wrong):,} labels that are neither 0 nor 1, such as {wrong.iloc[0]:g}"
        )
    return float((predicted["label"] == answers["label"]).mean())
