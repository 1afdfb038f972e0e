"""Grades predictions of who was transported."""

from pathlib import Path

from mlagentbench.grading.checks import InvalidSubmission, read_answers, read_submission


def grade(submission: Path, private: Path) -> float:
    """The share of passengers whose fate is predicted correctly."""
    answers = read_answers(private / "answers.csv", id="PassengerId", columns=["Transported"])
    predicted = read_submission(submission, id="PassengerId", columns=["Transported"], like=answers)
    values = predicted["Transported"]
    if wrong := values[~values.isin([0, 1])].tolist():
        raise InvalidSubmission(
            f"{submission.name} has {len(wrong):,} values of Transported that are neither 0 nor 1, such as {wrong[0]:g}"
        )
    return float((values == answers["Transported"]).mean())
