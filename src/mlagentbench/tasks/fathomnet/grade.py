"""Grades predicted categories and out-of-sample scores of images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from mlagentbench.grading.checks import InvalidSubmission, read_answers, read_texts

COLUMNS = ["categories", "osd"]
MAX_CATEGORIES = 20  # per image
MEAN_CELL_BYTES = 64  # at most: twenty categories of three digits have 79, an id and a score far less


def grade(submission: Path, private: Path) -> float:
    """Return the mean of MAP@20 of the categories and 2 AUC - 1 of the out-of-sample scores."""
    answers = read_answers(private / "answers.csv", id="id", columns=COLUMNS, text=True)
    known_categories = set(pd.read_csv(private / "known.csv", dtype=str)["category"])
    texts = read_texts(submission, id="id", columns=COLUMNS, like=answers, mean_cell_bytes=MEAN_CELL_BYTES)
    predicted = {
        image: _parse_categories(submission.name, image, cell, known_categories)
        for image, cell in texts["categories"].items()
    }
    scores = [_parse_score(submission.name, cell) for cell in texts["osd"]]
    truth = [set(cell.split()) for cell in answers["categories"]]
    precision = np.mean(
        [
            _average_precision(predicted[image], true_categories)
            for image, true_categories in zip(answers.index, truth, strict=True)
        ]
    )
    return float((precision + _scaled_auc(scores, answers["osd"] == "1")) / 2)


def _parse_categories(name: str, image: object, cell: str, known_categories: set[str]) -> list[str]:
    """Parse the categories in a cell, most likely first."""
    predicted = cell.split()
    if unknown := [category for category in predicted if category not in known_categories]:
        raise InvalidSubmission(f"{name}: image {image}: {unknown[0][:30]!r} is not a category id")
    if len(set(predicted)) < len(predicted):
        raise InvalidSubmission(f"{name}: image {image} lists a category twice")
    if len(predicted) > MAX_CATEGORIES:
        raise InvalidSubmission(
            f"{name}: image {image} lists {len(predicted)} categories; at most {MAX_CATEGORIES} are allowed"
        )
    return predicted


def _parse_score(name: str, cell: str) -> float:
    """Parse an out-of-sample score."""
    try:
        score = float(cell)
    except ValueError:
        score = np.nan
    if not 0 <= score <= 1:
        raise InvalidSubmission(f"{name}: osd must be a number from 0 to 1, but one is {cell[:30]!r}")
    return score


def _average_precision(predicted: Sequence[str], true_categories: set[str]) -> float:
    """Return the average precision of one image, relative to the best possible."""
    is_correct = np.array([category in true_categories for category in predicted], dtype=float)
    precision = is_correct.cumsum() / np.arange(1, len(predicted) + 1)
    return float((precision * is_correct).sum() / min(len(true_categories), MAX_CATEGORIES))


def _scaled_auc(scores: list[float], is_out_of_sample: "pd.Series[bool]") -> float:
    """Return 2 AUC - 1; ties count half."""
    positives, negatives = int(is_out_of_sample.sum()), int((~is_out_of_sample).sum())
    rank_sum = rankdata(scores)[is_out_of_sample.to_numpy()].sum() - positives * (positives + 1) / 2
    return float(2 * rank_sum / (positives * negatives) - 1)
