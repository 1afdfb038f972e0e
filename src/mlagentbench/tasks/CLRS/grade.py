"""Asks a submitted network for the shortest paths of hidden graphs, and counts the pointers that are right."""

from pathlib import Path
from typing import Any

import numpy as np

from mlagentbench.grading.checks import InvalidSubmission, Program, forbidden_imports

NEEDED = ("model.py", "weights.npz")
BATCH = 25  # graphs in one question
SECONDS = 60  # for its answer; all of them together stay below what a grading may take
FORBIDDEN = ("scipy", "networkx", "ctypes", "cffi", "subprocess", "multiprocessing")

# Graphs on which many paths are nearly as short as the shortest. A network that has learned from examples cannot tell
# them apart; whatever adds up weights and compares sums can.
TIED, TIED_NODES, LEVELS = 10, 24, 8
TIED_BY = 1e-4  # of an edge's weight, which is up to 1, at most
EXACT = 0.9  # share of the nearly tied pointers that no learned network gets right

Array = np.ndarray[Any, Any]


def violations(submission: Path) -> list[str]:
    """Imports against the rules, and answers as exact as only an algorithm gives them."""
    found = forbidden_imports(submission, "model.py", FORBIDDEN)
    if not (submission / "weights.npz").is_file():
        return found  # scripts of an earlier step, or grade says what is missing
    weights, right, tied = _nearly_tied()
    try:
        with _program(submission) as program:
            share = float((_answer(program, weights) == right)[tied].mean())
    except InvalidSubmission:
        return found  # grade says why
    if share > EXACT:
        found.append(
            f"model.py got {share:.1%} of the pointers right where two paths differ by less than {TIED_BY:g}:"
            " it seems to compute shortest paths, not to have learned them"
        )
    return found


def grade(submission: Path, private: Path) -> float:
    """The share of right pointers over all ordered pairs of two nodes of all hidden graphs."""
    for name in NEEDED:
        if (submission / name).is_symlink() or not (submission / name).is_file():
            raise InvalidSubmission(f"{name} is missing, or is not a plain file")
    right = pairs = 0
    with np.load(private / "test.npz", allow_pickle=False) as hidden, _program(submission) as program:
        for nodes in sorted(int(name.removeprefix("weights_")) for name in hidden if name.startswith("weights_")):
            weights, pointers = hidden[f"weights_{nodes}"], hidden[f"pointers_{nodes}"]
            counted = ~np.eye(nodes, dtype=bool)
            for begin in range(0, len(weights), BATCH):
                some = slice(begin, begin + BATCH)
                hits = (_answer(program, weights[some]) == pointers[some])[:, counted]
                right, pairs = right + int(hits.sum()), pairs + hits.size
    return right / pairs


def _program(submission: Path) -> Program:
    return Program(submission, "model", "predict")


def _answer(program: Program, weights: Array) -> Array:
    """The pointers that the submission predicts for a batch of graphs."""
    answers, _ = program.ask(weights > 0, weights, seconds=SECONDS, most=8 * weights.size)
    if len(answers) != 1:
        raise InvalidSubmission(f"predict returned {len(answers)} arrays; it must return one")
    (pointers,) = answers
    if pointers.shape != weights.shape or pointers.dtype.kind not in "iu":
        raise InvalidSubmission(
            f"predict returned {pointers.dtype} {pointers.shape} where whole numbers {weights.shape} are right"
        )
    if pointers.min() < 0 or pointers.max() >= weights.shape[1]:
        raise InvalidSubmission(
            f"predict returned pointers from {pointers.min()} to {pointers.max()}"
            f" on graphs with nodes from 0 to {weights.shape[1] - 1}"
        )
    return pointers


def _nearly_tied() -> tuple[Array, Array, Array]:
    """Weights that are few multiples of one number, but for a trifle; the right pointers; and which had rivals."""
    rng = np.random.default_rng(0)
    whole = np.triu(rng.integers(1, LEVELS + 1, (TIED, TIED_NODES, TIED_NODES)), k=1)
    whole *= rng.random(whole.shape) < 0.3
    trifle = np.triu(rng.random(whole.shape), k=1) * TIED_BY
    weights = np.where(whole > 0, whole / LEVELS - trifle, 0).astype(np.float32)
    whole, weights = whole + whole.swapaxes(1, 2), weights + weights.swapaxes(1, 2)
    coarse, exact = _distances(whole), _distances(weights)
    # by graph, i, p and j: how long the best path from i to j is whose last edge is that from p
    over = coarse[:, :, :, None] + np.where(whole > 0, whole, np.inf)[:, None]
    tied = ((over == coarse[:, :, None]) & np.isfinite(over)).sum(axis=2) > 1
    edges = np.where(weights > 0, weights.astype(np.float64), np.inf)
    right = (exact[:, :, :, None] + edges[:, None]).argmin(axis=2)
    return weights, right, tied & ~np.eye(TIED_NODES, dtype=bool)


def _distances(weights: Array) -> Array:
    """Between all nodes, by the algorithm of Floyd and Warshall."""
    distances = np.where(weights > 0, weights.astype(np.float64), np.inf)
    distances[:, np.arange(weights.shape[1]), np.arange(weights.shape[1])] = 0
    for k in range(weights.shape[1]):
        distances = np.minimum(distances, distances[:, :, k, None] + distances[:, None, k])
    return distances
