"""Grades predicted text scores."""

from pathlib import Path

from mlagentbench.grading.checks import read_answers, read_submission

SCORES = ["cohesion", "syntax", "vocabulary", "phraseology", "grammar", "conventions"]


def grade(submission: Path, private: Path) -> float:
    """Return the root mean squared error of each score, averaged over the six scores."""
    answers = read_answers(private / "answers.csv", id="text_id", columns=SCORES)
    predicted = read_submission(submission, id="text_id", columns=SCORES, like=answers)
    return float((((predicted - answers) ** 2).mean() ** 0.5).mean())
