"""Bounds the score that any program can reach on scenes of the generator."""

import json
from pathlib import Path

import numpy as np
from generator import (  # type: ignore[import-not-found]
    BLUR,
    BOTTOM_M,
    BOUNDARY_M,
    EXTRA_SKETCH_PROBABILITY,
    LOG_BRIGHTNESS,
    LOG_NOISE,
    LOG_PARTICLES,
    MAX_SKETCHES,
    MIN_BLUR,
    PortableRandom,
    SceneGenerator,
)
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm, rankdata

SCENES, DEPTHS, OUT_OF_SAMPLE_SHARE = 20_000, 260, 0.4

Floats = NDArray[np.float64]


def ceiling(public: Path, private: Path) -> float:
    """Return the expected score of an oracle that sees everything but the depth of a scene.

    The oracle recognizes every category, so its MAP@20 is 1. It knows how the generator of this data set
    works, the categories of all sketches, and the exact brightness, blur, noise and particles of the water.
    From these it computes the probability that the scene is out of sample, which gives the largest AUC. A
    program sees only the pixels, which depend on the depth through these quantities alone, so this is an
    upper bound. The AUC is that of many new scenes: on the hidden ones it differs by chance (standard error
    0.006).
    """
    seed = json.loads((private / "seed.json").read_text())
    sea, rng = SceneGenerator(PortableRandom(seed)), np.random.default_rng(0)
    is_out = rng.random(SCENES) < OUT_OF_SAMPLE_SHARE
    depths = np.where(is_out, rng.uniform(BOUNDARY_M, BOTTOM_M, SCENES), rng.uniform(0, BOUNDARY_M, SCENES))
    grid = (np.arange(DEPTHS) + 0.5) * BOTTOM_M / DEPTHS
    evidence = _water_evidence(depths, grid, rng) + _category_evidence(sea, depths, grid, rng)
    is_deep = grid > BOUNDARY_M
    ranks = rankdata(logsumexp(evidence[:, is_deep], axis=1) - logsumexp(evidence[:, ~is_deep], axis=1))
    positives = int(is_out.sum())
    auc = (ranks[is_out].sum() - positives * (positives + 1) / 2) / (positives * (SCENES - positives))
    return float((1 + 2 * auc - 1) / 2)


def _water_evidence(depths: Floats, grid: Floats, rng: np.random.Generator) -> Floats:
    """Draw the water of scenes, and return its log likelihood (scenes, grid) at each depth of the grid."""
    evidence = np.zeros((len(depths), len(grid)))
    for water in (LOG_BRIGHTNESS, BLUR, LOG_PARTICLES, LOG_NOISE):
        drawn = water.value(depths / BOTTOM_M, rng.standard_normal(len(depths)))[:, None]
        means = water.value(grid / BOTTOM_M, 0.0)
        likelihood = norm.logpdf(drawn, means, water.deviation)
        if water is BLUR:
            at_minimum = norm.logcdf(MIN_BLUR, means, water.deviation)
            likelihood = np.where(drawn <= MIN_BLUR, at_minimum, likelihood)
        evidence += likelihood
    return evidence


def _category_evidence(sea: SceneGenerator, depths: Floats, grid: Floats, rng: np.random.Generator) -> Floats:
    """Draw the categories of scenes, and return their log likelihood (scenes, grid)."""
    shares = _category_shares(sea, grid)
    drawn = _category_shares(sea, depths).cumsum(axis=1)
    count = 1 + rng.binomial(MAX_SKETCHES - 1, EXTRA_SKETCH_PROBABILITY, len(depths))
    evidence = np.zeros((len(depths), len(grid)))
    for number in range(MAX_SKETCHES):
        category = (drawn < rng.random((len(depths), 1))).sum(axis=1).clip(max=shares.shape[1] - 1)
        evidence += np.where((number < count)[:, None], np.log(shares[:, category].T + 1e-12), 0)
    return evidence


def _category_shares(sea: SceneGenerator, depths: Floats) -> Floats:
    """Return the probability of each category at each depth, (depths, categories)."""
    occurs = (sea.start_depths <= depths[:, None]) & (depths[:, None] <= sea.end_depths)
    weights = sea.weights * occurs
    shares: Floats = weights / weights.sum(axis=1, keepdims=True)
    return shares
