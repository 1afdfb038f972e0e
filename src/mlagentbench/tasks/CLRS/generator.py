"""Draws random weighted graphs, and finds all their shortest paths with the Floyd–Warshall algorithm."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

DENSITY_RANGE = (0.15, 0.5)  # from which the edge probability of each graph is drawn
MIN_SQUARED_WEIGHT = 1e-3  # added to squared weights, so that none is rounded to 0

Floats = npt.NDArray[np.float32]


class AlgorithmRun(NamedTuple):
    """The state of the algorithm after each of its steps: (graphs, steps, nodes, nodes)."""

    distances: Floats  # inf where no path is known yet
    pointers: npt.NDArray[np.uint8]  # last node before j on the path from i; i if no path is known


def sample_graphs(rng: np.random.Generator, count: int, nodes: int) -> Floats:
    """Draw symmetric weights of undirected Erdős–Rényi graphs, 0 where there is no edge.

    As in CLRS, a weight is the geometric mean of two uniform numbers.
    """
    density = rng.uniform(*DENSITY_RANGE, size=(count, 1, 1))
    uniforms, edge_draws = rng.random((2, count, nodes, nodes))
    weights = np.sqrt(uniforms * uniforms.swapaxes(1, 2) + MIN_SQUARED_WEIGHT)
    has_edge = np.triu(edge_draws < density, k=1)
    graphs: Floats = np.where(has_edge | has_edge.swapaxes(1, 2), weights, 0).astype(np.float32)
    return graphs


def run_floyd_warshall(weights: npt.NDArray[Any]) -> AlgorithmRun:
    """Run the algorithm on a batch of graphs; only a strictly shorter path replaces another."""
    count, nodes, _ = weights.shape
    distances = np.where(weights > 0, weights.astype(np.float64), np.inf)
    distances[:, np.arange(nodes), np.arange(nodes)] = 0
    pointers = np.broadcast_to(np.arange(nodes, dtype=np.uint8)[:, None], weights.shape)
    run = AlgorithmRun(
        np.empty((count, nodes, nodes, nodes), np.float32), np.empty((count, nodes, nodes, nodes), np.uint8)
    )
    for k in range(nodes):
        via_k = distances[:, :, k, None] + distances[:, None, k, :]
        shorter = via_k < distances
        distances = np.where(shorter, via_k, distances)
        pointers = np.where(shorter, pointers[:, None, k, :], pointers)
        run.distances[:, k], run.pointers[:, k] = distances, pointers
    return run
