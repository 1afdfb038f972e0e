"""The forward pass of a convolution layer (im2col): all windows as columns of one matrix, and one product."""

import numpy as np


def forward(images, weights, bias, stride, padding):
    """Slide every filter over every image.

    images: float64 (count, channels, height, width);
    weights: float64 (filters, channels, kernel height, kernel width);
    bias: float64 (filters,); stride and padding: integers, the same for rows and columns.
    Returns float64 (count, filters, output height, output width).
    """
    count, channels, height, width = images.shape
    filters, _, *kernel = weights.shape
    if padding:
        padded = np.zeros((count, channels, height + 2 * padding, width + 2 * padding))
        padded[:, :, padding : padding + height, padding : padding + width] = images
        images = padded
    windows = np.lib.stride_tricks.sliding_window_view(images, kernel, axis=(2, 3))[:, :, ::stride, ::stride]
    rows, columns = windows.shape[2:4]
    matrix = windows.transpose(0, 1, 4, 5, 2, 3).reshape(count, -1, rows * columns)
    output = weights.reshape(filters, -1) @ matrix
    output += bias[:, None]
    return output.reshape(count, filters, rows, columns)
