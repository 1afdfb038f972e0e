"""Grades predicted text scores."""

from pathlib import Path

import numpy as np

from mlagentbench.grading.checks import read_answer_arrays, read_submission_arrays

SCORES = ["cohesion", "syntax", "vocabulary", "phraseology", "grammar", "conventions"]


def grade(submission: Path, private: Path) -> float:
    """Return the root mean squared error of each score, averaged over the six scores."""
    answers = read_answer_arrays(private / "answers.csv", id="text_id", columns=SCORES)
    predicted = read_submission_arrays(submission, like=answers)
    errors = [np.sqrt(((predicted[name] - answers[name]) ** 2).mean()) for name in SCORES]
    return float(np.mean(errors))
