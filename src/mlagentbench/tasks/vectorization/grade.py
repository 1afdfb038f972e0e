"""Times a convolution layer's forward pass against the starter's, side by side."""

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlagentbench.grading.checks import InvalidSubmission, Program, forbidden_imports

STARTER = Path(__file__).parent / "starter"
TOLERANCE = 1e-8  # of every output value; outputs are about 1 in size
CHECKS = 4  # small layers, asked first and not timed: they warm up, and no two have the same form
PATIENCE, GRACE = 5, 3.0  # an answer may take 5 times as long as the starter's and 3 seconds
FORBIDDEN = (
    *("scipy", "torch", "numba", "cython", "jax", "tensorflow", "cupy", "numexpr", "pandas", "sklearn", "lightgbm"),
    *("ctypes", "_ctypes", "cffi", "importlib", "imp", "subprocess", "_posixsubprocess", "multiprocessing", "pty"),
)

Array = np.ndarray[Any, np.dtype[np.float64]]


class Layer(NamedTuple):
    """The form of a question."""

    images: tuple[int, ...]
    filters: tuple[int, ...]
    stride: int
    padding: int


def violations(submission: Path) -> list[str]:
    """Where conv.py, or a module that it imports, uses more than numpy."""
    return forbidden_imports(submission, "conv.py", FORBIDDEN)


def grade(submission: Path, private: Path) -> float:
    """The submission's time for a forward pass relative to the starter's, each layer at its median."""
    plan = json.loads((private / "plan.json").read_text())
    layers = [Layer(**layer) for layer in plan["layers"]]
    if (submission / "conv.py").is_symlink() or not (submission / "conv.py").is_file():
        raise InvalidSubmission("conv.py is missing, or is not a plain file")
    alone = _round([STARTER], layers, np.full(CHECKS + len(layers), math.inf))  # warms the machine up, and sets limits
    limits = PATIENCE * alone[:, 0] + GRACE
    rounds: list[Array] = []
    while len(rounds) < plan["rounds"] or (len(rounds) < plan["most"] and _doubtful(rounds)):
        rounds.append(_round([submission, STARTER], layers, limits)[CHECKS:])
        rounds.append(_round([STARTER, submission], layers, limits)[CHECKS:, ::-1])  # who is first may matter
    shares, ratios = _shares_and_ratios(rounds)
    return float(shares @ np.median(ratios, axis=0))


def _shares_and_ratios(rounds: list[Array]) -> tuple[Array, Array]:
    """Which part of the starter's time each layer takes, and by round and layer what the submission takes of it."""
    seconds = np.array(rounds)
    typical = np.median(seconds[:, :, 1], axis=0)
    return typical / typical.sum(), seconds[:, :, 0] / seconds[:, :, 1]


def _doubtful(rounds: list[Array]) -> bool:
    """Whether the score is not known well yet: to 1.5 %, or to a sixth of what sets it apart from 1."""
    shares, ratios = _shares_and_ratios(rounds)
    error = 1.25 * np.linalg.norm(shares * np.log(ratios).std(axis=0, ddof=1)) / math.sqrt(len(rounds))
    return bool(error > max(0.015, abs(math.log(shares @ np.median(ratios, axis=0))) / 6))


def _round(folders: list[Path], layers: list[Layer], limits: Array) -> Array:
    """How long each conv.py takes for a few small layers and for each of the given ones.

    All are fresh, in sandboxes of their own, and asked in turn, layer by layer, so that a machine that is slow for a
    moment is slow for all. Whichever is not asked is frozen.
    """
    rng = np.random.default_rng()  # from the system's entropy: nobody has seen these inputs before
    asked = [*(_small_layer(rng, number) for number in range(CHECKS)), *layers]
    with ExitStack() as stack:
        programs = {folder: stack.enter_context(_program(folder)) for folder in folders}
        seconds = [
            [_seconds(folder, program, layer, rng, limit) for folder, program in programs.items()]
            for layer, limit in zip(asked, limits, strict=True)
        ]
    return np.array(seconds)


def _program(folder: Path) -> Program:
    with _blamed(folder):
        program = Program(folder, "conv", "forward", packages=("numpy",), start_seconds=20)
    program.pause()
    return program


def _seconds(folder: Path, program: Program, layer: Layer, rng: np.random.Generator, limit: float) -> float:
    with _blamed(folder):
        seconds = _ask(program, layer, rng, 600 if folder == STARTER else limit)
    program.pause()
    return seconds


@contextmanager
def _blamed(folder: Path) -> Iterator[None]:
    """What goes wrong with the starter is our fault, and not the submission's."""
    try:
        yield
    except InvalidSubmission as error:
        if folder == STARTER:
            raise RuntimeError(f"the starter itself failed: {error}") from error
        raise


def _small_layer(rng: np.random.Generator, number: int) -> Layer:
    channels, kernel = int(rng.integers(1, 4)), rng.integers(1, 5, size=2).tolist()
    images = (int(rng.integers(1, 3)), channels, *rng.integers(5, 10, size=2).tolist())
    filters = (int(rng.integers(1, 4)), channels, *kernel)
    return Layer(images, filters, stride=1 + number % 3, padding=int(rng.integers(0, 3)))


def _ask(program: Program, layer: Layer, rng: np.random.Generator, limit: float) -> float:
    images, bias = rng.normal(size=layer.images), rng.normal(size=layer.filters[0])
    weights = rng.normal(size=layer.filters) / np.sqrt(np.prod(layer.filters[1:]))
    right = _convolved(images, weights, bias, layer)
    numbers = (np.array(layer.stride), np.array(layer.padding))
    answers, seconds = program.ask(images, weights, bias, *numbers, seconds=limit, most=right.nbytes)
    _compare(answers, right)
    return seconds


def _convolved(images: Array, weights: Array, bias: Array, layer: Layer) -> Array:
    """The right output."""
    edges = (layer.padding, layer.padding)
    padded = np.pad(images, ((0, 0), (0, 0), edges, edges))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[2:], axis=(2, 3))
    windows = windows[:, :, :: layer.stride, :: layer.stride]
    output: Array = np.einsum("ncyxij,fcij->nfyx", windows, weights) + bias[:, None, None]
    return output


def _compare(answers: list[Array], right: Array) -> None:
    if len(answers) != 1:
        raise InvalidSubmission(f"forward returned {len(answers)} arrays; it must return one")
    (answer,) = answers
    if answer.shape != right.shape or answer.dtype != np.float64:
        raise InvalidSubmission(f"forward returned {answer.dtype} {answer.shape} where float64 {right.shape} is right")
    if not np.isfinite(answer).all():
        raise InvalidSubmission("forward returned values that are not finite")
    worst = float(np.abs(answer - right).max())
    if worst > TOLERANCE:
        raise InvalidSubmission(
            f"forward returned values that are wrong by up to {worst:.3g}; {TOLERANCE:g} is allowed"
        )
