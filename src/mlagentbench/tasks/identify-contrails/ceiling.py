"""Bounds the global Dice that any program can reach on the hidden test scenes."""

import json
from pathlib import Path

import numpy as np
from generator import ANNOTATORS, IMAGE_PIXELS, PortableRandom, draw_annotations, draw_sky
from numpy.typing import NDArray
from scipy.stats import binom

DRAWS = 40  # of all annotators, in each scene


def ceiling(public: Path, private: Path) -> float:
    """Return the Dice of the best masks for someone who knows the scenes but not what annotators will do.

    The oracle knows every contrail exactly: its position, its width and its contrast, without sensor noise.
    Only the annotators are unknown to it. Given the scene they are independent and alike, so the probability
    that most of them mark a pixel follows from the probability that one does, which is estimated by drawing
    new annotators. The masks of the highest expected Dice contain the pixels above a threshold, because over
    hundreds of scenes the Dice is nearly the ratio of its expected numerator and denominator. A program sees
    less than the oracle, so this is an upper bound, except for chance in the annotators of the test set.
    """
    first, count = (_count_rows(public / "data" / f"{part}_records.csv") for part in ("train", "test"))
    seed = json.loads((private / "seed.json").read_text())
    true, agreed = [], []
    for number in range(first, first + count):
        rng = PortableRandom(seed, number)
        contrails, _ = draw_sky(rng)
        true.append(2 * draw_annotations(rng, contrails).sum(axis=0) > ANNOTATORS)
        others = PortableRandom(seed, number, 1)
        marked = sum((draw_annotations(others, contrails).sum(axis=0) for _ in range(DRAWS)), NOTHING)
        agreed.append(binom.sf(ANNOTATORS // 2, ANNOTATORS, marked / (DRAWS * ANNOTATORS)))
    masks = _best_masks(np.stack(agreed))
    return float(2 * (masks & true).sum() / (masks.sum() + np.sum(true)))


NOTHING = np.zeros((IMAGE_PIXELS, IMAGE_PIXELS), np.int64)


def _best_masks(agreed: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the masks of the highest expected Dice, given the probability of each pixel."""
    ordered = np.sort(agreed, axis=None)[::-1]
    dice = 2 * ordered.cumsum() / (np.arange(1, ordered.size + 1) + ordered.sum())
    return np.asarray(agreed >= ordered[dice.argmax()])


def _count_rows(table: Path) -> int:
    return len(table.read_text().splitlines()) - 1
