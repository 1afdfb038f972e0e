"""The forward pass of a network of convolution layers: small blocks of images, one thread per core.

A block passes through all layers before the next one starts, so its arrays stay in the cache. Arrays have
channels last: a row of a window is contiguous, and a product has the layout that the next layer reads.
Products are stacks of matrices so small that the BLAS library does not start threads of its own.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

IMAGES_PER_BLOCK = 4
MAX_PRODUCT = 400_000  # multiplications in one matrix product; OpenBLAS starts threads from 524,288
THREADS = min(4, os.cpu_count() or 1)
executor = ThreadPoolExecutor(THREADS)


class Layer:
    """The weights of a layer, and buffers for one block of images."""

    def __init__(self, count, height, width, weights, bias, stride, padding):
        filters, channels, kernel_height, kernel_width = weights.shape
        padded_height, padded_width = height + 2 * padding, width + 2 * padding
        self.rows = (padded_height - kernel_height) // stride + 1
        self.columns = (padded_width - kernel_width) // stride + 1
        # The bias is the weight of a last value of every window, which is one.
        self.weights = np.concatenate([weights.transpose(2, 3, 1, 0).reshape(-1, filters), bias[None]])
        window_size = len(self.weights)
        matrix = np.ones((count, self.rows, self.columns, window_size))
        self.is_pointwise = kernel_height == kernel_width == stride == 1 and not padding
        if self.is_pointwise:
            self.input = matrix[..., :-1]
        else:
            padded = np.zeros((count, padded_height, padded_width, channels))
            self.input = padded[:, padding : padding + height, padding : padding + width]
            by_image, by_row, by_column, by_value = padded.strides
            shape = (count, self.rows, self.columns, kernel_height, kernel_width * channels)
            strides = (by_image, stride * by_row, stride * by_column, by_row, by_value)
            self.windows = np.lib.stride_tricks.as_strided(padded, shape, strides)
            strides = (*matrix.strides[:3], shape[-1] * by_value, by_value)
            self.window_values = np.lib.stride_tricks.as_strided(matrix, shape, strides)
        total = count * self.rows * self.columns
        sizes = (size for size in range(total, 0, -1) if total % size == 0)
        size = next(size for size in sizes if size * window_size * filters <= MAX_PRODUCT or size == 1)
        self.matrices = matrix.reshape(-1, size, window_size)
        self.products = np.empty((total // size, size, filters))
        self.output = self.products.reshape(count, self.rows, self.columns, filters)

    def run(self, target):
        """Compute the outputs for `self.input`, and write them to `target`."""
        if not self.is_pointwise:
            np.copyto(self.window_values, self.windows)
        np.matmul(self.matrices, self.weights, out=self.products)
        np.maximum(self.output, 0, out=target)


def forward(images, parameters, layers):
    """Apply one layer after another to every image; negative outputs of a layer become zero (ReLU).

    images: float64 (count, channels, height, width);
    parameters: float64, one dimension: for each layer its weights (filters, channels, kernel height, kernel
    width), then its bias (filters,);
    layers: int64 (number of layers, 5): for each layer the number of filters, kernel height, kernel width,
    stride and padding; stride and padding are the same for rows and columns.
    Returns float64 (count, filters, output height, output width) of the last layer.
    """
    blocks = -(-len(images) // IMAGES_PER_BLOCK)
    share = -(-blocks // THREADS) * IMAGES_PER_BLOCK
    parts = [images[start : start + share] for start in range(0, len(images), share)]
    jobs = [executor.submit(run_blocks, part, parameters, layers) for part in parts[1:]]
    outputs = [run_blocks(parts[0], parameters, layers), *(job.result() for job in jobs)]
    return np.concatenate(outputs)


def run_blocks(images, parameters, settings):
    """Run some of the images through all layers, block by block; the last block may be smaller."""
    whole = len(images) // IMAGES_PER_BLOCK * IMAGES_PER_BLOCK
    outputs = []
    for part, count in ((images[:whole], IMAGES_PER_BLOCK), (images[whole:], len(images) - whole)):
        if len(part):
            layers = build_layers(count, images.shape[1:], parameters, settings)
            output = np.empty((len(part), layers[-1].rows, layers[-1].columns, settings[-1, 0]))
            inputs = [layer.input for layer in layers[1:]]
            for start in range(0, len(part), count):
                block = slice(start, start + count)
                np.copyto(layers[0].input, part[block].transpose(0, 2, 3, 1))
                for layer, target in zip(layers, [*inputs, output[block]], strict=True):
                    layer.run(target)
            outputs.append(output.transpose(0, 3, 1, 2))
    return np.concatenate(outputs)


def build_layers(count, shape, parameters, settings):
    """Split the parameters into layers for blocks of `count` images of a shape."""
    channels, height, width = shape
    layers, start = [], 0
    for filters, kernel_height, kernel_width, stride, padding in settings.tolist():
        end = start + filters * channels * kernel_height * kernel_width
        weights = parameters[start:end].reshape(filters, channels, kernel_height, kernel_width)
        bias = parameters[end : end + filters]
        layers.append(Layer(count, height, width, weights, bias, stride, padding))
        channels, height, width, start = filters, layers[-1].rows, layers[-1].columns, end + filters
    return layers
