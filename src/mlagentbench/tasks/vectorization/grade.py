"""Times the forward pass of a convolutional network against the starter's, side by side."""

import json
import time
from dataclasses import dataclass
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
UNTIMED_NETWORKS = 4  # small networks that come first; they warm up, and no two have the same shapes
STEP = 16  # factor between the numbers of images that are tried
MAX_SHARE = 1 / 8  # of the starter's time for one image; with a slower answer no larger number is tried
BLAS_SPIN_S = 0.05  # after a product, threads of the grader's own BLAS library wait actively for a moment
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
    """The settings of one layer."""

    filters: int
    kernel: tuple[int, int]
    stride: int
    padding: int


class Network(NamedTuple):
    """The shapes of one question: (channels, height, width) of an image, and the layers."""

    image: tuple[int, ...]
    layers: list[Layer]


@dataclass
class ImageCount:
    """The number of images that the submission gets in a timed call: 1, or as many as it is fast enough for.

    The starter always gets one. Its time is proportional to the number of images, so times are compared per
    image.
    """

    most: int
    starter_seconds: float = 0.0
    chosen: int = 0


def violations(submission: Path) -> list[str]:
    """Report imports in conv.py, and in the modules that it imports, that the rules forbid."""
    return forbidden_imports(submission, "conv.py", FORBIDDEN_PACKAGES)


def grade(submission: Path, private: Path) -> float:
    """Return the time of a forward pass per image, relative to the starter's."""
    plan = json.loads((private / "plan.json").read_text())
    most, *image = plan["images"]
    network = Network(tuple(image), [Layer(**layer) for layer in plan["layers"]])
    if (submission / "conv.py").is_symlink() or not (submission / "conv.py").is_file():
        raise InvalidSubmission("conv.py is missing, or is not a regular file")
    count = ImageCount(most)
    comparison = SpeedComparison(
        STARTER,
        submission,
        start_program,
        lambda: _draw_questions(network, count),
        warmup_questions=UNTIMED_NETWORKS,
    )
    return comparison.run(plan["rounds"], plan["most"])


def start_program(folder: Path) -> Program:
    """Start the program in a folder."""
    return Program(folder, "conv", "forward", packages=("numpy",), start_timeout_s=20)


def _draw_questions(network: Network, count: ImageCount) -> list[Question]:
    """Draw a few small networks, followed by the given one."""
    rng = np.random.default_rng()  # seeded from the system's entropy, so the inputs are unpredictable
    small = [_draw_small_network(rng, number) for number in range(UNTIMED_NETWORKS)]
    untimed = [partial(_ask_small, network, int(rng.integers(1, 4)), rng) for network in small]
    return [*untimed, partial(_ask_timed, network, count, rng)]


def _draw_small_network(rng: np.random.Generator, number: int) -> Network:
    layers = []
    for position in range(1 + number % 2):
        kernel = rng.integers(1, 5 - position, size=2).tolist()
        layers.append(Layer(int(rng.integers(1, 4)), kernel, 1 + number % 3, int(rng.integers(position, 3))))
    return Network((int(rng.integers(1, 4)), *rng.integers(5, 10, size=2).tolist()), layers)


def _ask_small(
    network: Network, images: int, rng: np.random.Generator, program: Program, original: bool, limit: float
) -> float:
    return ask(network, images, rng, program, limit)


def _ask_timed(
    network: Network,
    count: ImageCount,
    rng: np.random.Generator,
    program: Program,
    original: bool,
    limit: float,
) -> float:
    """Return the seconds per image; choose the number of images for the submission when it is first asked."""
    if original:
        count.starter_seconds = ask(network, 1, rng, program, limit)
        return count.starter_seconds
    if not count.chosen:
        images, seconds = 1, ask(network, 1, rng, program, limit)
        while images < count.most and seconds <= MAX_SHARE * count.starter_seconds:
            images = min(images * STEP, count.most)
            seconds = ask(network, images, rng, program, limit)
        count.chosen = images
    return ask(network, count.chosen, rng, program, limit) / count.chosen


def ask(network: Network, images: int, rng: np.random.Generator, program: Program, limit: float) -> float:
    """Ask for the outputs of a network with random weights for random images; return the seconds."""
    inputs, parameters, settings = draw_inputs(network, images, rng)
    expected = _run_network(inputs, parameters, network)
    if images > 1:
        time.sleep(BLAS_SPIN_S)
    answers, seconds = program.ask(inputs, parameters, settings, timeout_s=limit, max_bytes=expected.nbytes)
    _check_output(answers, expected)
    return seconds


def draw_inputs(
    network: Network, images: int, rng: np.random.Generator
) -> tuple[Array, Array, np.ndarray[Any, np.dtype[np.int64]]]:
    """Draw the arguments of `forward`; weights are scaled so that all outputs are of order 1."""
    channels, parts = network.image[0], []
    for layer in network.layers:
        window = channels * layer.kernel[0] * layer.kernel[1]
        parts.append(rng.normal(size=layer.filters * window) * np.sqrt(2 / window))
        parts.append(rng.normal(size=layer.filters) / 10)
        channels = layer.filters
    settings = [[layer.filters, *layer.kernel, layer.stride, layer.padding] for layer in network.layers]
    return rng.normal(size=(images, *network.image)), np.concatenate(parts), np.array(settings, np.int64)


def _run_network(images: Array, parameters: Array, network: Network) -> Array:
    """Return the expected output."""
    start = 0
    for layer in network.layers:
        shape = (layer.filters, images.shape[1], *layer.kernel)
        end = start + int(np.prod(shape))
        weights, bias = parameters[start:end].reshape(shape), parameters[end : end + layer.filters]
        images = np.maximum(_convolve(images, weights, bias, layer), 0)
        start = end + layer.filters
    return images


def _convolve(images: Array, weights: Array, bias: Array, layer: Layer) -> Array:
    sides = (layer.padding, layer.padding)
    padded = np.pad(images, ((0, 0), (0, 0), sides, sides))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[2:], axis=(2, 3))
    windows = windows[:, :, :: layer.stride, :: layer.stride]
    output: Array = np.einsum("ncyxij,fcij->nfyx", windows, weights, optimize=True) + bias[:, None, None]
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
