"""Grades forecasts of the UPDRS scores."""

from pathlib import Path

import numpy as np

from mlagentbench.grading.checks import read_answers, read_submission


def grade(submission: Path, private: Path) -> float:
    """Return the SMAPE in percent, 0 to 200, over all forecasts whose score was measured; 0/0 counts as 0."""
    answers = read_answers(private / "answers.csv", id="prediction_id", columns=["rating"])
    measured = read_answers(private / "measured.csv", id="prediction_id", columns=["measured"])
    predicted = read_submission(submission, id="prediction_id", columns=["rating"], like=answers)
    is_measured = measured.loc[answers.index, "measured"].to_numpy() == 1
    actual, forecast = (table["rating"].to_numpy(float)[is_measured] for table in (answers, predicted))
    scale = (np.abs(actual) + np.abs(forecast)) / 2
    errors = np.divide(np.abs(forecast - actual), scale, out=np.zeros_like(scale), where=scale > 0)
    return float(100 * errors.mean())
