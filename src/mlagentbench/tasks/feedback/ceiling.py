"""The best MCRMSE on the hidden test set: that of a predictor that sees every error that was inserted."""

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
from generator import (  # type: ignore[import-not-found]
    ERROR_KIND_SD,
    ERROR_RATE_AT_3,
    ERROR_RATE_POWER,
    FOREIGN_SENTENCES,
    HALO_SD,
    QUALITIES,
    QUALITY_MEANS,
    QUALITY_SD,
    RATER_ERROR_SD,
    SHARED_VARIANCE,
    UNEVEN_PARAGRAPHS,
)
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]
# By quality and kind of error: weight, opportunities and errors.
Counts = dict[tuple[str, str], list[tuple[float, ...]]]

LEVELS = np.arange(2, 11) / 2  # the scores that raters give
TRUE_QUALITIES = np.append(np.linspace(1, 4.98, 200), 5.0)  # grid over which we integrate
ABILITIES, ABILITY_WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
HABITS, HABIT_WEIGHTS = np.polynomial.hermite_e.hermegauss(15)  # of a writer, for one kind of error
MIN_PROBABILITY = 1e-12


def ceiling(public: Path, private: Path) -> float:
    """Return the MCRMSE of the posterior means of the scores, given all error counts.

    A text is determined by its passage, by which errors occurred at which opportunities, and by choices that
    do not depend on the writer (which wrong word, for example). A predictor that knows all of these knows at
    least as much as one that sees the text, and for the scores only the counts matter. Given the ability of
    the writer the six qualities are independent, so their posterior is computed exactly, up to the grids.
    Nobody can recover all errors from a text, so no program can expect a lower MCRMSE.
    """
    answers = pd.read_csv(private / "answers.csv", dtype={"text_id": str}).set_index("text_id")
    counts = pd.read_csv(private / "error_counts.csv", dtype={"text_id": str})
    priors = np.stack([_quality_probabilities(mean) for mean in QUALITY_MEANS])
    score_means = _mean_scores()
    counts_by_text: dict[str, Counts] = defaultdict(lambda: defaultdict(list))
    for text_id, quality, kind, *count in counts.itertuples(index=False, name=None):
        counts_by_text[text_id][quality, kind].append(tuple(count))
    predicted = [_posterior_means(counts_by_text[text_id], priors, score_means) for text_id in answers.index]
    errors = np.array(predicted) - answers[list(QUALITIES)].to_numpy()
    return float(np.sqrt((errors**2).mean(axis=0)).mean())


def _posterior_means(counts: Counts, priors: Array, score_means: Array) -> Array:
    """Return the posterior means of the six scores of a text."""
    totals = {quality: np.zeros(len(TRUE_QUALITIES)) for quality in QUALITIES}
    for (quality, kind), rows in counts.items():
        totals[quality] += _log_likelihood(kind, rows)
    likelihoods = np.stack([np.exp(total - total.max()) for total in totals.values()])
    joint = priors * likelihoods[:, None, :]  # quality, ability, true quality
    evidence = np.maximum(joint.sum(axis=2), 1e-300)
    weights = ABILITY_WEIGHTS * evidence.prod(axis=0)
    means: Array = (joint @ score_means / evidence) @ (weights / weights.sum())
    return means


def _log_likelihood(kind: str, counts: list[tuple[float, ...]]) -> Array:
    """Return the log likelihood of the counts of one kind of error, for each true quality."""
    rates = ERROR_RATE_AT_3 * ((5 - TRUE_QUALITIES) / 2) ** ERROR_RATE_POWER
    has_habit = kind not in (FOREIGN_SENTENCES, UNEVEN_PARAGRAPHS)
    habits = np.exp(ERROR_KIND_SD * HABITS - ERROR_KIND_SD**2 / 2) if has_habit else np.ones(1)
    total = np.zeros((len(rates), len(habits)))
    for weight, opportunities, errors in counts:
        probability = np.clip(weight * rates[:, None] * habits, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        total += errors * np.log(probability) + (opportunities - errors) * np.log1p(-probability)
    weights = HABIT_WEIGHTS / HABIT_WEIGHTS.sum() if has_habit else np.ones(1)
    highest = total.max()
    result: Array = np.log(np.maximum(np.exp(total - highest) @ weights, 1e-300)) + highest
    return result


def _quality_probabilities(mean: float) -> Array:
    """Return the probability of each true quality (columns), given each ability (rows)."""
    edges = np.concatenate([[-np.inf], (TRUE_QUALITIES[1:] + TRUE_QUALITIES[:-1]) / 2, [np.inf]])
    centers = mean + QUALITY_SD * math.sqrt(SHARED_VARIANCE) * ABILITIES
    spread = QUALITY_SD * math.sqrt(1 - SHARED_VARIANCE)
    probabilities: Array = np.diff(ndtr((edges - centers[:, None]) / spread), axis=1)
    return probabilities


def _mean_scores() -> Array:
    """Return the mean score that raters give to each true quality."""
    edges = np.concatenate([[-np.inf], (LEVELS[1:] + LEVELS[:-1]) / 2, [np.inf]])
    spread = math.hypot(HALO_SD, RATER_ERROR_SD)
    means: Array = np.diff(ndtr((edges - TRUE_QUALITIES[:, None]) / spread), axis=1) @ LEVELS
    return means
