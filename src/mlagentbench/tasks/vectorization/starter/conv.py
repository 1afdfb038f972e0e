"""The forward pass of a convolution layer."""

import numpy as np


def forward(images, weights, bias, stride, padding):
    """Slide every filter over every image.

    images: float64 (count, channels, height, width);
    weights: float64 (filters, channels, kernel height, kernel width);
    bias: float64 (filters,); stride and padding: integers, the same for rows and columns.
    Returns float64 (count, filters, output height, output width).
    """
    count, channels, height, width = images.shape
    filters, _, kernel_height, kernel_width = weights.shape
    padded = np.zeros((count, channels, height + 2 * padding, width + 2 * padding))
    padded[:, :, padding : padding + height, padding : padding + width] = images
    output_height = (height + 2 * padding - kernel_height) // stride + 1
    output_width = (width + 2 * padding - kernel_width) // stride + 1
    output = np.zeros((count, filters, output_height, output_width))
    for image in range(count):
        for filter in range(filters):
            for row in range(output_height):
                for column in range(output_width):
                    total = bias[filter]
                    for channel in range(channels):
                        for i in range(kernel_height):
                            for j in range(kernel_width):
                                pixel = padded[image, channel, row * stride + i, column * stride + j]
                                total += pixel * weights[filter, channel, i, j]
                    output[image, filter, row, column] = total
    return output
