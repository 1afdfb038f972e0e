"""Grades named categories and out-of-sample scores of pictures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from mlagentbench.grading.checks import InvalidSubmission, read_answers, read_texts

COLUMNS = ["categories", "osd"]
MOST = 20  # categories named for one picture
CELL = 64  # bytes of a cell on average: twenty categories of three digits have 79, an id and a score far less


def grade(submission: Path, private: Path) -> float:
    """The mean of MAP@20 of the categories and 2 AUC - 1 of the out-of-sample scores."""
    answers = read_answers(private / "answers.csv", id="id", columns=COLUMNS, text=True)
    known = set(pd.read_csv(private / "known.csv", dtype=str)["category"])
    texts = read_texts(submission, id="id", columns=COLUMNS, like=answers, cell=CELL)
    named = {
        picture: _categories(submission.name, picture, cell, known)
        for picture, cell in texts["categories"].items()
    }
    scores = [_score(submission.name, cell) for cell in texts["osd"]]
    truth = [set(cell.split()) for cell in answers["categories"]]
    precision = np.mean(
        [_average_precision(named[each], true) for each, true in zip(answers.index, truth, strict=True)]
    )
    return float((precision + _scaled_auc(scores, answers["osd"] == "1")) / 2)


def _categories(name: str, picture: object, cell: str, known: set[str]) -> list[str]:
    """The categories that a cell names, best first."""
    named = cell.split()
    if unknown := [each for each in named if each not in known]:
        raise InvalidSubmission(f"{name}: picture {picture} names {unknown[0][:30]!r}, which is no category")
    if len(set(named)) < len(named):
        raise InvalidSubmission(f"{name}: picture {picture} names a category twice")
    if len(named) > MOST:
        raise InvalidSubmission(
            f"{name}: picture {picture} names {len(named)} categories; at most {MOST} are allowed"
        )
    return named


def _score(name: str, cell: str) -> float:
    """An out-of-sample score."""
    try:
        score = float(cell)
    except ValueError:
        score = np.nan
    if not 0 <= score <= 1:
        raise InvalidSubmission(f"{name} has an osd that is no number from 0 to 1: {cell[:30]!r}")
    return score


def _average_precision(named: Sequence[str], true: set[str]) -> float:
    """Of one picture: precision at the rank of each right category, summed, by the number that could be right."""
    right = np.array([each in true for each in named], dtype=float)
    precision = right.cumsum() / np.arange(1, len(named) + 1)
    return float((precision * right).sum() / min(len(true), MOST))


def _scaled_auc(scores: list[float], out: "pd.Series[bool]") -> float:
    """2 AUC - 1; two pictures with equal scores are half right."""
    positives, negatives = int(out.sum()), int((~out).sum())
    above = rankdata(scores)[out.to_numpy()].sum() - positives * (positives + 1) / 2
    return float(2 * above / (positives * negatives) - 1)
