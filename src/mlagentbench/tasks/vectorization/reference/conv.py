"""The forward pass of a network of convolution layers (im2col): all windows of a layer as one matrix."""

import numpy as np


def forward(images, parameters, layers):
    """Apply one layer after another to every image; negative outputs of a layer become zero (ReLU).

    images: float64 (count, channels, height, width);
    parameters: float64, one dimension: for each layer its weights (filters, channels, kernel height, kernel
    width), then its bias (filters,);
    layers: int64 (number of layers, 5): for each layer the number of filters, kernel height, kernel width,
    stride and padding; stride and padding are the same for rows and columns.
    Returns float64 (count, filters, output height, output width) of the last layer.
    """
    start = 0
    for filters, *kernel, stride, padding in layers.tolist():
        end = start + filters * images.shape[1] * kernel[0] * kernel[1]
        weights, bias = parameters[start:end].reshape(filters, -1), parameters[end : end + filters]
        images = convolve(images, weights, bias, kernel, stride, padding)
        start = end + filters
    return images


def convolve(images, weights, bias, kernel, stride, padding):
    """Multiply the weights (filters, values of a window) with the windows of every image."""
    count, channels, height, width = images.shape
    if padding:
        padded = np.zeros((count, channels, height + 2 * padding, width + 2 * padding))
        padded[:, :, padding : padding + height, padding : padding + width] = images
        images = padded
    windows = np.lib.stride_tricks.sliding_window_view(images, kernel, axis=(2, 3))[:, :, ::stride, ::stride]
    rows, columns = windows.shape[2:4]
    matrix = windows.transpose(0, 1, 4, 5, 2, 3).reshape(count, -1, rows * columns)
    output = weights @ matrix
    output += bias[:, None]
    np.maximum(output, 0, out=output)
    return output.reshape(count, len(weights), rows, columns)
