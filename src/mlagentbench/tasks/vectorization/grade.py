"""Times the forward pass of a convolution layer against the starter's, side by side."""

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlagentbench.grading.checks import (
    InvalidSubmission,
    Program,
    Question,
    SpeedComparison,
    forbidden_imports,
)

STARTER = Path(__file__).parent / "starter"
TOLERANCE = 1e-8  # absolute, for every output value; outputs are of order 1
UNTIMED_LAYERS = 4  # small layers that come first; they warm up, and no two have the same shapes
FORBIDDEN_PACKAGES = (
    *(
        "scipy",
        "torch",
        "numba",
        "cython",
        "jax",
        "tensorflow",
        "cupy",
        "numexpr",
        "pandas",
        "sklearn",
        "lightgbm",
    ),
    *(
        "ctypes",
        "_ctypes",
        "cffi",
        "importlib",
        "imp",
        "subprocess",
        "_posixsubprocess",
        "multiprocessing",
        "pty",
    ),
)

Array = np.ndarray[Any, np.dtype[np.float64]]


class Layer(NamedTuple):
    """The shapes of one question."""

    images: tuple[int, ...]
    filters: tuple[int, ...]
    stride: int
    padding: int


def violations(submission: Path) -> list[str]:
    """Report imports in conv.py, and in the modules that it imports, that the rules forbid."""
    return forbidden_imports(submission, "conv.py", FORBIDDEN_PACKAGES)


def grade(submission: Path, private: Path) -> float:
    """Return the time of a forward pass relative to the starter's, each layer at its median."""
    plan = json.loads((private / "plan.json").read_text())
    layers = [Layer(**layer) for layer in plan["layers"]]
    if (submission / "conv.py").is_symlink() or not (submission / "conv.py").is_file():
        raise InvalidSubmission("conv.py is missing, or is not a regular file")
    comparison = SpeedComparison(
        STARTER, submission, _start_program, lambda: _draw_questions(layers), warmup_questions=UNTIMED_LAYERS
    )
    return comparison.run(plan["rounds"], plan["most"])


def _start_program(folder: Path) -> Program:
    return Program(folder, "conv", "forward", packages=("numpy",), start_timeout_s=20)


def _draw_questions(layers: list[Layer]) -> list[Question]:
    """Draw a few small layers, followed by the given ones."""
    rng = np.random.default_rng()  # seeded from the system's entropy, so the inputs are unpredictable
    question_layers = [*(_draw_small_layer(rng, number) for number in range(UNTIMED_LAYERS)), *layers]
    return [partial(_ask, layer, rng) for layer in question_layers]


def _draw_small_layer(rng: np.random.Generator, number: int) -> Layer:
    channels, kernel = int(rng.integers(1, 4)), rng.integers(1, 5, size=2).tolist()
    images = (int(rng.integers(1, 3)), channels, *rng.integers(5, 10, size=2).tolist())
    filters = (int(rng.integers(1, 4)), channels, *kernel)
    return Layer(images, filters, stride=1 + number % 3, padding=int(rng.integers(0, 3)))


def _ask(layer: Layer, rng: np.random.Generator, program: Program, original: bool, limit: float) -> float:
    images, bias = rng.normal(size=layer.images), rng.normal(size=layer.filters[0])
    weights = rng.normal(size=layer.filters) / np.sqrt(np.prod(layer.filters[1:]))
    expected = _convolve(images, weights, bias, layer)
    numbers = (np.array(layer.stride), np.array(layer.padding))
    answers, seconds = program.ask(
        images, weights, bias, *numbers, timeout_s=limit, max_bytes=expected.nbytes
    )
    _check_output(answers, expected)
    return seconds


def _convolve(images: Array, weights: Array, bias: Array, layer: Layer) -> Array:
    """Return the expected output."""
    sides = (layer.padding, layer.padding)
    padded = np.pad(images, ((0, 0), (0, 0), sides, sides))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[2:], axis=(2, 3))
    windows = windows[:, :, :: layer.stride, :: layer.stride]
    output: Array = np.einsum("ncyxij,fcij->nfyx", windows, weights) + bias[:, None, None]
    return output


def _check_output(answers: list[Array], expected: Array) -> None:
    if len(answers) != 1:
        raise InvalidSubmission(f"forward returned {len(answers)} arrays; it must return one")
    (answer,) = answers
    if answer.shape != expected.shape or answer.dtype != np.float64:
        raise InvalidSubmission(
            f"forward returned {answer.dtype} {answer.shape}; expected float64 {expected.shape}"
        )
    if not np.isfinite(answer).all():
        raise InvalidSubmission("forward returned values that are not finite")
    worst = float(np.abs(answer - expected).max())
    if worst > TOLERANCE:
        raise InvalidSubmission(
            f"forward returned values that are wrong by up to {worst:.3g}; at most {TOLERANCE:g} is allowed"
        )
