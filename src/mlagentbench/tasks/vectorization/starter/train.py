"""Time the forward pass of conv.py on random inputs for the layers in layers.json, and check its outputs."""

import json
import os
import time
from pathlib import Path

import numpy as np

from conv import forward


def random_inputs(layer, rng):
    """Draw the inputs of one layer."""
    filters, *window = layer["filters"]
    weights = rng.normal(size=(filters, *window)) / np.sqrt(np.prod(window))
    return (
        rng.normal(size=layer["images"]),
        weights,
        rng.normal(size=filters),
        layer["stride"],
        layer["padding"],
    )


def compute_output(images, weights, bias, stride, padding, image, filter, row, column):
    """Compute the output of a layer at one position."""
    total = bias[filter]
    _, channels, height, width = images.shape
    for channel in range(channels):
        for i in range(weights.shape[2]):
            for j in range(weights.shape[3]):
                y, x = row * stride + i - padding, column * stride + j - padding
                if 0 <= y < height and 0 <= x < width:
                    total += images[image, channel, y, x] * weights[filter, channel, i, j]
    return total


def check(output, inputs, rng):
    """Exit if an output has the wrong shape, or is wrong at one of twenty random positions."""
    images, weights, _, stride, padding = inputs
    output_sides = [(images.shape[k] + 2 * padding - weights.shape[k]) // stride + 1 for k in (2, 3)]
    shape = (len(images), len(weights), *output_sides)
    if output.shape != shape or output.dtype != np.float64:
        raise SystemExit(f"forward returned {output.dtype} {output.shape}; expected float64 {shape}")
    for _ in range(20):
        index = tuple(rng.integers(shape))
        expected = compute_output(*inputs, *index)
        if not abs(output[index] - expected) <= 1e-8:
            raise SystemExit(f"forward returned {output[index]} at {index}; expected {expected}")


def main():
    rng = np.random.default_rng(int(os.environ.get("SEED", "0")))
    layers = json.loads(Path("layers.json").read_text())
    passes = []
    for number in range(12):
        seconds = 0.0
        for layer in layers:
            inputs = random_inputs(layer, rng)
            start = time.perf_counter()
            output = forward(*inputs)
            seconds += time.perf_counter() - start
            check(output, inputs, rng)
        print(f"pass {number + 1}: {seconds:.4f} seconds", flush=True)
        passes.append(seconds)
    print(f"validation seconds per forward pass: {np.median(passes):.4f}")


main()
