"""Grades forecasts of the UPDRS scores."""

from pathlib import Path

import numpy as np

from mlagentbench.grading.checks import read_answer_arrays, read_submission_arrays


def grade(submission: Path, private: Path) -> float:
    """Return the SMAPE in percent, 0 to 200, over all forecasts whose score was measured; 0/0 counts as 0."""
    answers = read_answer_arrays(private / "answers.csv", id="prediction_id", columns=["rating"])
    measured = read_answer_arrays(private / "measured.csv", id="prediction_id", columns=["measured"])
    predicted = read_submission_arrays(submission, like=answers)["rating"]
    by_id = dict(zip(measured.ids, measured["measured"], strict=True))
    is_measured = np.array([by_id[id] == 1 for id in answers.ids])
    actual, forecast = answers["rating"][is_measured], predicted[is_measured]
    scale = (np.abs(actual) + np.abs(forecast)) / 2
    errors = np.divide(np.abs(forecast - actual), scale, out=np.zeros_like(scale), where=scale > 0)
    return float(100 * errors.mean())
