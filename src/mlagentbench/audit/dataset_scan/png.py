"""Decodes PNG files, because a runtime may have no package for images."""

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS_OF_COLOR_TYPE = {0: 1, 2: 3, 4: 2, 6: 4}


def decode_png(data: bytes) -> list[list[float]]:
    """Return the grey levels of an image, line by line.

    Raises:
        ValueError: It is not a PNG file with 8 bits per channel and without interlacing.
    """
    if data[:8] != SIGNATURE:
        raise ValueError("not a PNG file")
    width, height, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", data[16:29])
    channels = CHANNELS_OF_COLOR_TYPE.get(color, 0)
    if depth != 8 or not channels or interlace:
        raise ValueError("another kind of PNG file")
    content, size = zlib.decompress(_image_data(data)), width * channels
    lines, above = [], bytes(size)
    for start in range(0, height * (size + 1), size + 1):
        above = _unfilter(content[start], content[start + 1 : start + 1 + size], above, channels)
        lines.append(above)
    colors = min(channels, 3) if channels != 2 else 1
    return [[sum(line[x : x + colors]) / colors for x in range(0, size, channels)] for line in lines]


def _image_data(data: bytes) -> bytes:
    chunks, position = [], len(SIGNATURE)
    while position + 8 <= len(data):
        size, kind = struct.unpack(">I4s", data[position : position + 8])
        if kind == b"IDAT":
            chunks.append(data[position + 8 : position + 8 + size])
        position += size + 12
    return b"".join(chunks)


def _unfilter(kind: int, line: bytes, above: bytes, channels: int) -> bytes:
    """Undo the filter of one line: the difference to its neighbours."""
    if kind == 0:
        return line
    if kind == 2:
        return bytes((value + up) & 255 for value, up in zip(line, above, strict=True))
    result = bytearray(line)
    for x, value in enumerate(line):
        left = result[x - channels] if x >= channels else 0
        corner = above[x - channels] if x >= channels else 0
        guess = {1: left, 3: (left + above[x]) // 2}.get(kind)
        result[x] = (value + (_paeth(left, above[x], corner) if guess is None else guess)) & 255
    return bytes(result)


def _paeth(left: int, up: int, corner: int) -> int:
    """The neighbour that is nearest to left + up - corner."""
    estimate = left + up - corner
    return min((left, up, corner), key=lambda neighbour: abs(estimate - neighbour))
