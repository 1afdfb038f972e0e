"""The forward pass of a network of convolution layers."""

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
    for filters, kernel_height, kernel_width, stride, padding in layers.tolist():
        shape = (filters, images.shape[1], kernel_height, kernel_width)
        end = start + filters * images.shape[1] * kernel_height * kernel_width
        weights, bias = parameters[start:end].reshape(shape), parameters[end : end + filters]
        images = convolve(images, weights, bias, stride, padding)
        start = end + filters
    return images


def convolve(images, weights, bias, stride, padding):
    """Slide every filter over every image."""
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
                    output[image, filter, row, column] = max(total, 0.0)
    return output
