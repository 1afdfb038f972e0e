"""Time the forward pass of conv.py on random inputs for the network in network.json, and check its outputs."""

import json
import os
import time
from pathlib import Path

import numpy as np

from conv import forward

PASSES = 8  # timed; the time of the median one is printed


def draw_inputs(network, count, rng):
    """Draw the arguments of forward for a number of images."""
    channels, parts, layers = network["images"][1], [], []
    for layer in network["layers"]:
        filters, (height, width) = layer["filters"], layer["kernel"]
        size = channels * height * width
        parts += [rng.normal(size=filters * size) * np.sqrt(2 / size), rng.normal(size=filters) / 10]
        layers.append([filters, height, width, layer["stride"], layer["padding"]])
        channels = filters
    return rng.normal(size=(count, *network["images"][1:])), np.concatenate(parts), np.array(layers)


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
    return max(total, 0.0)


def check(images, parameters, layers, rng):
    """Exit if the output of a layer is wrong at one of twenty random positions, or the network's is wrong."""
    network_output = forward(images, parameters, layers)
    start = 0
    for number, (filters, height, width, stride, padding) in enumerate(layers.tolist()):
        end = start + filters * images.shape[1] * height * width
        weights = parameters[start:end].reshape(filters, -1, height, width)
        bias = parameters[end : end + filters]
        output = forward(images, parameters[start : end + filters], layers[number : number + 1])
        sides = [
            (images.shape[k] + 2 * padding - weights.shape[k]) // stride + 1 for k in (2, 3)
        ]
        shape = (len(images), filters, *sides)
        if output.shape != shape or output.dtype != np.float64:
            raise SystemExit(f"forward returned {output.dtype} {output.shape}; expected float64 {shape}")
        for _ in range(20):
            index = tuple(rng.integers(shape))
            expected = compute_output(images, weights, bias, stride, padding, *index)
            if not abs(output[index] - expected) <= 1e-8:
                raise SystemExit(f"forward returned {output[index]} at {index}; expected {expected}")
        images, start = output, end + filters
    if network_output.shape != images.shape or not np.allclose(network_output, images, rtol=0, atol=1e-8):
        raise SystemExit("forward returned other values for all layers at once than for one after another")


def time_pass(network, count, rng):
    """Return the seconds of one call."""
    inputs = draw_inputs(network, count, rng)
    start = time.perf_counter()
    forward(*inputs)
    return time.perf_counter() - start


def main():
    rng = np.random.default_rng(int(os.environ.get("SEED", "0")))
    network = json.loads(Path("network.json").read_text())
    check(*draw_inputs(network, 1, rng), rng)
    check(*draw_inputs(network, 3, rng), rng) if time_pass(network, 1, rng) < 0.1 else None
    # Like the grader, use more images if a call with fewer is fast; the original takes about a second.
    count = 1
    while count < network["images"][0] and time_pass(network, count, rng) < 0.1:
        count = min(16 * count, network["images"][0])
    passes = []
    for number in range(PASSES):
        passes.append(time_pass(network, count, rng) / count)
        print(f"pass {number + 1}: {passes[-1]:.4g} seconds per image ({count} images)", flush=True)
    print(f"validation seconds per image: {np.median(passes):.4g}")


main()
