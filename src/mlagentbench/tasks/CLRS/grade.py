"""Asks a submitted network for the pointers of hidden graphs, and counts those that are correct."""

from pathlib import Path
from typing import Any

import numpy as np

from mlagentbench.grading.checks import InvalidSubmission, Program, forbidden_imports

REQUIRED_FILES = ("model.py", "weights.npz")
GRAPHS_PER_CALL = 25
CALL_TIMEOUT_S = 60  # all calls together stay below the time limit of a grading
FORBIDDEN_PACKAGES = ("scipy", "networkx", "ctypes", "cffi", "subprocess", "multiprocessing")

# Where two paths are nearly equally short, a network that has learned from examples guesses, while a program
# that adds weights and compares the sums is right, unless it rounds the weights by more than the difference.
# The near ties are among the graded pairs, so a submission can neither recognize them nor fail at them
# without losing score.
NEAR_TIE_RANGES = (
    (0.0, 1e-3),
    (1e-3, 3e-3),
)  # by how much the second-best path is longer; edge weights are up to 1
MIN_NEAR_TIES = 100  # fewer are not conclusive
MAX_NEAR_TIE_ACCURACY = 0.9  # a higher share is taken for computed, not learned

Array = np.ndarray[Any, Any]


def violations(submission: Path) -> list[str]:
    """Report imports of packages that the rules forbid."""
    return forbidden_imports(submission, "model.py", FORBIDDEN_PACKAGES)


def grade(submission: Path, private: Path) -> float:
    """Return the fraction of correct pointers over all ordered pairs of different nodes."""
    for name in REQUIRED_FILES:
        if (submission / name).is_symlink() or not (submission / name).is_file():
            raise InvalidSubmission(f"{name} is missing, or is not a regular file")
    correct_parts, gap_parts = [], []
    with np.load(private / "test.npz", allow_pickle=False) as hidden, _start_program(submission) as program:
        for nodes in sorted(
            int(name.removeprefix("weights_")) for name in hidden if name.startswith("weights_")
        ):
            weights, pointers = hidden[f"weights_{nodes}"], hidden[f"pointers_{nodes}"]
            off_diagonal = ~np.eye(nodes, dtype=bool)
            for start in range(0, len(weights), GRAPHS_PER_CALL):
                batch = slice(start, start + GRAPHS_PER_CALL)
                correct_parts.append(
                    (_predict(program, weights[batch]) == pointers[batch])[:, off_diagonal].ravel()
                )
                gap_parts.append(_near_tie_gaps(weights[batch])[:, off_diagonal].ravel())
    correct = np.concatenate(correct_parts)
    _reject_computed(correct, np.concatenate(gap_parts))
    return float(correct.mean())


def _start_program(submission: Path) -> Program:
    return Program(submission, "model", "predict")


def _predict(program: Program, weights: Array) -> Array:
    """Return the pointers that the submission predicts for a batch of graphs."""
    answers, _ = program.ask(weights > 0, weights, timeout_s=CALL_TIMEOUT_S, max_bytes=8 * weights.size)
    if len(answers) != 1:
        raise InvalidSubmission(f"predict returned {len(answers)} arrays; it must return one")
    (pointers,) = answers
    if pointers.shape != weights.shape or pointers.dtype.kind not in "iu":
        raise InvalidSubmission(
            f"predict returned {pointers.dtype} {pointers.shape}; expected integers {weights.shape}"
        )
    if pointers.min() < 0 or pointers.max() >= weights.shape[1]:
        raise InvalidSubmission(
            f"predict returned pointers from {pointers.min()} to {pointers.max()}"
            f" for graphs with nodes from 0 to {weights.shape[1] - 1}"
        )
    return pointers


def _reject_computed(correct: Array, gaps: Array) -> None:
    """Reject answers that are as exact as those of an algorithm."""
    for low, high in NEAR_TIE_RANGES:
        near_ties = correct[(gaps >= low) & (gaps < high)]
        if len(near_ties) >= MIN_NEAR_TIES and near_ties.mean() > MAX_NEAR_TIE_ACCURACY:
            raise InvalidSubmission(
                f"{near_ties.mean():.1%} of {len(near_ties):,} pointers are correct where the second-best"
                f" path is longer by {low:g} to {high:g}; above {MAX_NEAR_TIE_ACCURACY:.0%} they are taken"
                " as computed, not learned"
            )


def _near_tie_gaps(weights: Array) -> Array:
    """Return by graph, i and j how much longer the path is with the second-best last node before j."""
    edges = np.where(weights > 0, weights.astype(np.float64), np.inf)
    path_lengths = _shortest_distances(weights)[:, :, :, None] + edges[:, None]  # by graph, i, last node, j
    best, second_best = np.moveaxis(np.partition(path_lengths, 1, axis=2)[:, :, :2], 2, 0)
    gaps: Array = np.subtract(
        second_best, best, out=np.full_like(best, np.inf), where=np.isfinite(second_best)
    )
    return gaps


def _shortest_distances(weights: Array) -> Array:
    """Return the distances between all nodes, by the Floyd–Warshall algorithm."""
    distances = np.where(weights > 0, weights.astype(np.float64), np.inf)
    distances[:, np.arange(weights.shape[1]), np.arange(weights.shape[1])] = 0
    for k in range(weights.shape[1]):
        distances = np.minimum(distances, distances[:, :, k, None] + distances[:, None, k])
    return distances
