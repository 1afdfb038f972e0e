"""Grades predictions of who was transported."""

from pathlib import Path

from mlagentbench.grading.checks import InvalidSubmission, read_answers, read_submission


def grade(submission: Path, private: Path) -> float:
    """Return the accuracy: the fraction of passengers whose label is predicted correctly."""
    answers = read_answers(private / "answers.csv", id="PassengerId", columns=["Transported"])
    predicted = read_submission(submission, id="PassengerId", columns=["Transported"], like=answers)
    values = predicted["Transported"]
    if invalid := values[~values.isin([0, 1])].tolist():
        raise InvalidSubmission(
            f"{submission.name}: {len(invalid):,} values of Transported are neither 0 nor 1,"
            f" for example {invalid[0]:g}"
        )
    return float((values == answers["Transported"]).mean())
