"""Asks a submitted network for the shortest paths of hidden graphs, and counts the pointers that are right."""

from pathlib import Path
from typing import Any

import numpy as np

from mlagentbench.grading.checks import InvalidSubmission, Program, forbidden_imports

NEEDED = ("model.py", "weights.npz")
BATCH = 25  # graphs in one question
SECONDS = 60  # for its answer; all of them together stay below what a grading may take
FORBIDDEN = ("scipy", "networkx", "ctypes", "cffi", "subprocess", "multiprocessing")

# Where two ways are nearly as short, a network that has learned from examples guesses. Whatever adds up weights and
# compares sums is right, and if it rounds them first, it is right where they differ by more than that. These pointers
# are among the graded ones, so that nobody can tell a trick question from another, or fail at it without a loss.
NEARLY = ((0.0, 1e-3), (1e-3, 3e-3))  # by how much the second best way is longer; an edge's weight is up to 1
LEAST = 100  # so many pointers tell
EXACT = 0.9  # share of them that no learned network gets right

Array = np.ndarray[Any, Any]


def violations(submission: Path) -> list[str]:
    """Imports against the rules."""
    return forbidden_imports(submission, "model.py", FORBIDDEN)


def grade(submission: Path, private: Path) -> float:
    """The share of right pointers over all ordered pairs of two nodes of all hidden graphs."""
    for name in NEEDED:
        if (submission / name).is_symlink() or not (submission / name).is_file():
            raise InvalidSubmission(f"{name} is missing, or is not a plain file")
    hits, detours = [], []
    with np.load(private / "test.npz", allow_pickle=False) as hidden, _program(submission) as program:
        for nodes in sorted(
            int(name.removeprefix("weights_")) for name in hidden if name.startswith("weights_")
        ):
            weights, pointers = hidden[f"weights_{nodes}"], hidden[f"pointers_{nodes}"]
            counted = ~np.eye(nodes, dtype=bool)
            for begin in range(0, len(weights), BATCH):
                some = slice(begin, begin + BATCH)
                hits.append((_answer(program, weights[some]) == pointers[some])[:, counted].ravel())
                detours.append(_detours(weights[some])[:, counted].ravel())
    right = np.concatenate(hits)
    _require_learned(right, np.concatenate(detours))
    return float(right.mean())


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


def _require_learned(right: Array, detours: Array) -> None:
    """Refuse answers as exact as only an algorithm gives them."""
    for least, most in NEARLY:
        close = right[(detours >= least) & (detours < most)]
        if len(close) >= LEAST and close.mean() > EXACT:
            raise InvalidSubmission(
                f"predict got {close.mean():.1%} of {len(close):,} pointers right where the second best way is longer"
                f" by {least:g} to {most:g}: it seems to compute shortest paths, not to have learned them"
            )


def _detours(weights: Array) -> Array:
    """By graph, i and j: how much longer the way from i to j is over the second best of the last nodes before j."""
    edges = np.where(weights > 0, weights.astype(np.float64), np.inf)
    ways = _distances(weights)[:, :, :, None] + edges[:, None]  # by graph, i, last node, j
    best, second = np.moveaxis(np.partition(ways, 1, axis=2)[:, :, :2], 2, 0)
    detours: Array = np.subtract(second, best, out=np.full_like(best, np.inf), where=np.isfinite(second))
    return detours


def _distances(weights: Array) -> Array:
    """Between all nodes, by the algorithm of Floyd and Warshall."""
    distances = np.where(weights > 0, weights.astype(np.float64), np.inf)
    distances[:, np.arange(weights.shape[1]), np.arange(weights.shape[1])] = 0
    for k in range(weights.shape[1]):
        distances = np.minimum(distances, distances[:, :, k, None] + distances[:, None, k])
    return distances
