"""Asks a submitted network for the pointers of hidden graphs, and counts those that are correct.

A good submission is also run with changed weights: its answers must depend on what it has learned.
"""

import hashlib
import itertools
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlagentbench.grading.checks import InvalidSubmission, Program, forbidden_imports

REQUIRED_FILES = ("model.py", "weights.npz")
GRAPHS_PER_CALL = 25
CALL_TIMEOUT_S = 60
TOTAL_TIMEOUT_S = 420  # all programs together; below the time limit of a grading
FORBIDDEN_PACKAGES = (
    "scipy",
    "networkx",
    "ctypes",
    "cffi",
    "subprocess",
    "multiprocessing",
    "hashlib",
    "zlib",
)

MAX_WEIGHTS_BYTES, MAX_SCRIPT_BYTES = 32 << 20, 2 << 20
ARRAY_NAME = re.compile(r"[\w./ -]{1,200}")
# The file is read in a sandbox too. Its arrays come back as pairs: the name as bytes, and the values.
WEIGHTS_READER = """
import numpy as np

def read():
    arrays = []
    with np.load("weights.npz", allow_pickle=False) as file:
        for name in file.files:
            arrays += [np.array(list(name.encode()), np.uint8), file[name]]
    return arrays
"""

# An algorithm answers the same whatever is in weights.npz. A learned network does not: with shuffled weights
# it fails, and with a little noise on all weights some answers change: the more, the more noise; the same
# ones and others, if there is more of the same noise; and others, if the sign of the noise is reversed.
MIN_CHECKED_SCORE = 0.6  # below it, a rule of thumb is as good: there is nothing to gain by an algorithm
CHECKED_GRAPHS = 5  # of each size
PARALLEL_RUNS = 2  # most of the time is spent importing torch
NOT_LEARNED = "the pointers do not depend on weights.npz as those of a learned network do"
RULE_OF_THUMB_SCORE = 0.4  # of the neighbour of j that is nearest to it
MAX_KEPT_SHARE = 0.5  # of what the score is above the rule of thumb, kept with shuffled weights
FIRST_NOISE, NOISE_RANGE = 0.02, (1e-6, 1.0)  # relative to each weight
TARGET_CHANGED, CHANGED_RANGE = 0.04, (0.01, 0.12)  # share of the answers
MAX_NOISE_RUNS, MAX_NOISE_STEP = 6, 30.0  # MAX_NOISE_STEP is the factor between two runs
# Smaller noise, relative to the noise that was found: the response of a network is nearly linear there. It
# changes about a fifth as many answers; half of it changes some of the same, and the opposite changes others.
SMALL_NOISE = 0.2
MAX_SMALL_NOISE_SHARE = 0.6  # 0.07 to 0.34 for the reference and the expert
MIN_NESTED_SHARE = 0.75  # of the answers that half the small noise changes; 0.96 to 1
MAX_OPPOSITE_SHARE = 0.75  # of the answers that the small noise changes; 0 to 0.31

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]


class Graphs(NamedTuple):
    """A batch of graphs of one size: the weights of their edges, and pointers."""

    edges: Array
    pointers: Array


class Submission:
    """The scripts of a submission, which can be run with any weights; each run has a folder of its own."""

    def __init__(self, submission: Path, folder: Path) -> None:
        self._folder, self._numbers = folder, itertools.count()
        self._deadline = time.monotonic() + TOTAL_TIMEOUT_S
        _copy_scripts(submission, folder / "scripts")

    def predict(self, weights: Weights, batches: Sequence[Graphs]) -> list[Array]:
        """Return the pointers that the submission predicts with these weights, in a new process."""
        folder = self._folder / f"run-{next(self._numbers)}"
        shutil.copytree(self._folder / "scripts", folder)
        _write_weights(folder / "weights.npz", weights)
        start_timeout_s = min(CALL_TIMEOUT_S, self._deadline - time.monotonic())
        with Program(folder, "model", "predict", start_timeout_s=start_timeout_s) as program:
            return [_predict(program, graphs.edges, self._deadline) for graphs in batches]

    def predict_changed(self, weights: Weights, batches: Sequence[Graphs]) -> Array:
        """Return the pointers of all pairs; changed weights may cause an error, and then all are wrong."""
        try:
            return _flatten(self.predict(weights, batches))
        except InvalidSubmission:
            if time.monotonic() > self._deadline:
                raise
            return np.full_like(_flatten([graphs.pointers for graphs in batches]), -1)


def violations(submission: Path) -> list[str]:
    """Report imports of packages that the rules forbid."""
    return forbidden_imports(submission, "model.py", FORBIDDEN_PACKAGES)


def grade(submission: Path, private: Path) -> float:
    """Return the fraction of correct pointers over all ordered pairs of different nodes."""
    for name in REQUIRED_FILES:
        if (submission / name).is_symlink() or not (submission / name).is_file():
            raise InvalidSubmission(f"{name} is missing, or is not a regular file")
    batches = _read_graphs(private / "test.npz")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # the sandbox has a user of its own
        weights = _read_weights(submission / "weights.npz", folder / "reader")
        program = Submission(submission, folder)
        answers = program.predict(weights, batches)
        correct = _flatten(answers) == _flatten([graphs.pointers for graphs in batches])
        score = float(correct.mean())
        if score >= MIN_CHECKED_SCORE:
            answered = [batch._replace(pointers=part) for batch, part in zip(batches, answers, strict=True)]
            checked = _select_checked(batches), _select_checked(answered)
            _reject_if_not_learned(program, weights, *checked, _make_seed(weights, private))
    return score


def _read_graphs(path: Path) -> list[Graphs]:
    with np.load(path, allow_pickle=False) as hidden:
        sizes = sorted(int(name.removeprefix("weights_")) for name in hidden if name.startswith("weights_"))
        by_size = [Graphs(hidden[f"weights_{nodes}"], hidden[f"pointers_{nodes}"]) for nodes in sizes]
    return [
        Graphs(*(part[start : start + GRAPHS_PER_CALL] for part in graphs))
        for graphs in by_size
        for start in range(0, len(graphs.edges), GRAPHS_PER_CALL)
    ]


def _select_checked(batches: Sequence[Graphs]) -> list[Graphs]:
    """Return the first graphs of each size."""
    first = {graphs.edges.shape[1]: graphs for graphs in reversed(batches)}
    return [Graphs(*(part[:CHECKED_GRAPHS] for part in first[nodes])) for nodes in sorted(first)]


def _predict(program: Program, edges: Array, deadline: float) -> Array:
    """Return the pointers that the submission predicts for a batch of graphs."""
    timeout_s = min(CALL_TIMEOUT_S, deadline - time.monotonic())
    answers, _ = program.ask(edges > 0, edges, timeout_s=timeout_s, max_bytes=8 * edges.size)
    if len(answers) != 1:
        raise InvalidSubmission(f"predict returned {len(answers)} arrays; it must return one")
    (pointers,) = answers
    if pointers.shape != edges.shape or pointers.dtype.kind not in "iu":
        raise InvalidSubmission(
            f"predict returned {pointers.dtype} {pointers.shape}; expected integers {edges.shape}"
        )
    if pointers.min() < 0 or pointers.max() >= edges.shape[1]:
        raise InvalidSubmission(
            f"predict returned pointers from {pointers.min()} to {pointers.max()}"
            f" for graphs with nodes from 0 to {edges.shape[1] - 1}"
        )
    return pointers


def _flatten(batches: Sequence[Array]) -> Array:
    """Join the values of all pairs of two different nodes."""
    return np.concatenate(
        [array[:, ~np.eye(array.shape[1], dtype=bool)].ravel().astype(np.int64) for array in batches]
    )


def _reject_if_not_learned(
    program: Submission, weights: Weights, batches: list[Graphs], answered: list[Graphs], seed: int
) -> None:
    """Reject answers that do not depend on the weights in the way those of a learned network do."""
    pointers, answers = (_flatten([graphs.pointers for graphs in part]) for part in (batches, answered))
    score = (answers == pointers).mean()
    shuffled_score = (program.predict_changed(shuffle_weights(weights, seed), batches) == pointers).mean()
    if shuffled_score > RULE_OF_THUMB_SCORE + MAX_KEPT_SHARE * max(0.0, score - RULE_OF_THUMB_SCORE):
        raise InvalidSubmission(
            f"{NOT_LEARNED}: {shuffled_score:.1%} are correct with shuffled weights,"
            f" {score:.1%} with the submitted ones"
        )

    def find_changed(noise: float) -> Array:
        changed: Array = program.predict_changed(add_noise(weights, noise, seed), batches) != answers
        return changed

    noise, changed = _search_noise(find_changed)
    with ThreadPoolExecutor(PARALLEL_RUNS) as pool:
        factors = (SMALL_NOISE, SMALL_NOISE / 2, -SMALL_NOISE)
        small, half, opposite = pool.map(find_changed, [noise * factor for factor in factors])
    if not 0 < small.mean() <= MAX_SMALL_NOISE_SHARE * changed.mean():
        raise InvalidSubmission(
            f"{NOT_LEARNED}: noise of {noise:.2g} of each weight changes {changed.mean():.2%} of them,"
            f" a fifth of that noise {small.mean():.2%}"
        )
    if not half.any() or small[half].mean() < MIN_NESTED_SHARE:
        raise InvalidSubmission(
            f"{NOT_LEARNED}: of {half.sum():,} that change with half of some noise,"
            f" {(small & half).sum():,} change with all of it"
        )
    if opposite[small].mean() > MAX_OPPOSITE_SHARE:
        raise InvalidSubmission(
            f"{NOT_LEARNED}: of {small.sum():,} that change with some noise,"
            f" {(small & opposite).sum():,} also change with the opposite noise"
        )


def _search_noise(find_changed: Callable[[float], Array]) -> tuple[float, Array]:
    """Return an amount of noise that changes a few answers, and which ones it changes."""
    noise, changed = FIRST_NOISE, find_changed(FIRST_NOISE)
    for _ in range(MAX_NOISE_RUNS - 1):
        if CHANGED_RANGE[0] <= changed.mean() <= CHANGED_RANGE[1]:
            break
        factor = np.clip(TARGET_CHANGED / max(changed.mean(), 1e-9), 1 / MAX_NOISE_STEP, MAX_NOISE_STEP)
        if (next_noise := float(np.clip(noise * factor, *NOISE_RANGE))) == noise:
            break
        noise, changed = next_noise, find_changed(next_noise)
    if not CHANGED_RANGE[0] <= changed.mean() <= CHANGED_RANGE[1]:
        raise InvalidSubmission(
            f"{NOT_LEARNED}: no amount of noise on the weights changes a few of them;"
            f" noise of {noise:.2g} of each weight changes {changed.mean():.2%}"
        )
    return noise, changed


def shuffle_weights(weights: Weights, seed: int) -> Weights:
    """Permute the numbers of each array of parameters."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.permutation(array.ravel()).reshape(array.shape) if array.dtype.kind == "f" else array
        for name, array in weights.items()
    }


def add_noise(weights: Weights, noise: float, seed: int) -> Weights:
    """Multiply every parameter by 1 + noise · z, with normal z that depend on the seed only."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        return {
            name: (array * (1 + noise * rng.standard_normal(array.shape))).astype(array.dtype)
            if array.dtype.kind == "f"
            else array
            for name, array in weights.items()
        }


def _make_seed(weights: Weights, private: Path) -> int:
    """Return a seed that is the same for each grading of a submission, and unknown to it."""
    digest = hashlib.sha256((private / "test.npz").read_bytes())
    for array in weights.values():
        digest.update(array.tobytes())
    return int.from_bytes(digest.digest())


def _read_weights(path: Path, folder: Path) -> Weights:
    """Read the arrays of weights.npz in a sandbox, and check that they can be parameters or settings."""
    folder.mkdir(mode=0o755)
    (folder / "reader.py").write_text(WEIGHTS_READER)
    if (size := path.stat().st_size) > MAX_WEIGHTS_BYTES:
        raise InvalidSubmission(f"{path.name} has {size:,} bytes; at most {MAX_WEIGHTS_BYTES:,} are allowed")
    shutil.copyfile(path, folder / path.name)
    try:
        with Program(folder, "reader", "read") as program:
            arrays, _ = program.ask(timeout_s=CALL_TIMEOUT_S, max_bytes=MAX_WEIGHTS_BYTES)
    except InvalidSubmission as error:
        raise InvalidSubmission(f"weights.npz cannot be read: {error}") from error
    names = [bytes(name).decode("utf-8", "replace") for name in arrays[::2]]
    weights = dict(zip(names, arrays[1::2], strict=True))
    for name, array in weights.items():
        if not ARRAY_NAME.fullmatch(name):
            raise InvalidSubmission(f"weights.npz has an array with an unusable name: {name[:50]!r}")
        is_parameter = array.dtype.kind == "f" and array.dtype.itemsize >= 4
        if not is_parameter and not (array.dtype.kind in "iub" and array.size == 1):
            raise InvalidSubmission(
                f"weights.npz: {name} is {array.dtype} {array.shape}; parameters must be float32 or float64,"
                " and settings single integers"
            )
    return weights


def _write_weights(path: Path, weights: Weights) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in weights.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    path.chmod(0o644)


def _copy_scripts(submission: Path, folder: Path) -> None:
    """Copy the Python files of the submission; links and other files are left out."""
    folder.mkdir(mode=0o755)
    bytes_left = MAX_SCRIPT_BYTES
    for parent, _, names in os.walk(submission):
        target = folder / Path(parent).relative_to(submission)
        for path in (Path(parent) / name for name in sorted(names) if name.endswith(".py")):
            if path.is_symlink() or not path.is_file():
                continue
            bytes_left -= path.stat().st_size
            if bytes_left < 0:
                raise InvalidSubmission(f"the Python files have more than {MAX_SCRIPT_BYTES:,} bytes")
            target.mkdir(mode=0o755, parents=True, exist_ok=True)
            (target / path.name).write_bytes(path.read_bytes())
