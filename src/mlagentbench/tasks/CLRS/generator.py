"""Draws random weighted graphs, and finds all their shortest paths with the algorithm of Floyd and Warshall."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

DENSITIES = (0.15, 0.5)  # between which the share of joined pairs is drawn, for each graph
SMALLEST = 1e-3  # is added to squared weights, so that none is lost in rounding

Floats = npt.NDArray[np.float32]


class Run(NamedTuple):
    """What the algorithm holds after each of its steps: (graphs, steps, nodes, nodes)."""

    distances: Floats  # inf where no path is known yet
    pointers: npt.NDArray[
        np.uint8
    ]  # the last node before j on the path from i; i itself where no path is known


def sample(rng: np.random.Generator, count: int, nodes: int) -> Floats:
    """Symmetric weights of undirected Erdős–Rényi graphs; 0 where there is no edge.

    As in CLRS, a weight is the geometric mean of two uniform numbers.
    """
    density = rng.uniform(*DENSITIES, size=(count, 1, 1))
    drawn, edges = rng.random((2, count, nodes, nodes))
    weights = np.sqrt(drawn * drawn.swapaxes(1, 2) + SMALLEST)
    joined = np.triu(edges < density, k=1)
    chosen: Floats = np.where(joined | joined.swapaxes(1, 2), weights, 0).astype(np.float32)
    return chosen


def solve(weights: npt.NDArray[Any]) -> Run:
    """All steps of the algorithm, on a batch of graphs; only a path that is truly shorter replaces another."""
    count, nodes, _ = weights.shape
    distances = np.where(weights > 0, weights.astype(np.float64), np.inf)
    distances[:, np.arange(nodes), np.arange(nodes)] = 0
    pointers = np.broadcast_to(np.arange(nodes, dtype=np.uint8)[:, None], weights.shape)
    run = Run(
        np.empty((count, nodes, nodes, nodes), np.float32), np.empty((count, nodes, nodes, nodes), np.uint8)
    )
    for k in range(nodes):
        through = distances[:, :, k, None] + distances[:, None, k, :]
        shorter = through < distances
        distances = np.where(shorter, through, distances)
        pointers = np.where(shorter, pointers[:, None, k, :], pointers)
        run.distances[:, k], run.pointers[:, k] = distances, pointers
    return run
