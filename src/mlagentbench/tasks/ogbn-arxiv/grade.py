"""Grades predicted labels of papers."""

from pathlib import Path

from mlagentbench.grading.checks import InvalidSubmission, read_answers, read_submission


def grade(submission: Path, private: Path) -> float:
    """Accuracy: the share of the hidden papers whose label is right."""
    answers = read_answers(private / "answers.csv", id="node", columns=["label"])
    predicted = read_submission(submission, id="node", columns=["label"], like=answers)["label"]
    wrong = predicted[(predicted % 1 != 0) | (predicted < 0)]
    if len(wrong):
        raise InvalidSubmission(
            f"{submission.name} has {len(wrong):,} labels that are no class: {wrong.iloc[0]:g}, ..."
        )
    return float((predicted == answers["label"]).mean())
