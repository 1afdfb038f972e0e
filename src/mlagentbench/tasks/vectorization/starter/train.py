"""Measures the forward pass in conv.py on random inputs for the layers in layers.json."""

import json
import os
import time
from pathlib import Path

import numpy as np

from conv import forward


def random_inputs(layer, rng):
    """Images, weights and biases of one layer."""
    filters, *window = layer["filters"]
    weights = rng.normal(size=(filters, *window)) / np.sqrt(np.prod(window))
    return rng.normal(size=layer["images"]), weights, rng.normal(size=filters), layer["stride"], layer["padding"]


def one_value(images, weights, bias, stride, padding, image, filter, row, column):
    """The right output of a layer at one place."""
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
    """Stop if an output has the wrong shape, or is wrong at one of twenty random places."""
    images, weights, _, stride, padding = inputs
    sides = [(images.shape[k] + 2 * padding - weights.shape[k]) // stride + 1 for k in (2, 3)]
    shape = (len(images), len(weights), *sides)
    if output.shape != shape or output.dtype != np.float64:
        raise SystemExit(f"forward returned {output.dtype} {output.shape}; right is float64 {shape}")
    for _ in range(20):
        place = tuple(rng.integers(shape))
        right = one_value(*inputs, *place)
        if not abs(output[place] - right) <= 1e-8:
            raise SystemExit(f"forward returned {output[place]} at {place}; right is {right}")


def main():
    rng = np.random.default_rng(int(os.environ.get("SEED", "0")))
    layers = json.loads(Path("layers.json").read_text())
    passes = []
    for number in range(12):
        seconds = 0.0
        for layer in layers:
            inputs = random_inputs(layer, rng)
            started = time.perf_counter()
            output = forward(*inputs)
            seconds += time.perf_counter() - started
            check(output, inputs, rng)
        print(f"pass {number + 1}: {seconds:.4f} seconds", flush=True)
        passes.append(seconds)
    print(f"validation seconds per forward pass: {np.median(passes):.4f}")


main()
