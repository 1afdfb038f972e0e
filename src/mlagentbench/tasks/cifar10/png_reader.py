"""Decodes 8-bit PNG images with numpy alone, because the harness has no imaging library."""

import struct
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {2: 3, 6: 4}  # by colour type: RGB, RGBA

Bytes = npt.NDArray[np.uint8]
PixelRow = list[list[int]]  # the channels of each pixel


def decode(data: bytes) -> Bytes:
    """Return the pixels (height, width, channels) of an 8-bit RGB or RGBA image that is not interlaced."""
    if not data.startswith(SIGNATURE):
        raise ValueError("not a PNG image")
    chunks = list(_iter_chunks(data))
    if not chunks or chunks[0][0] != b"IHDR":
        raise ValueError("PNG image without a header")
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth != 8 or colour not in CHANNELS or interlace:
        raise ValueError(f"unsupported PNG image: {depth} bits, colour type {colour}, interlace {interlace}")
    channels = CHANNELS[colour]
    packed = b"".join(content for kind, content in chunks if kind == b"IDAT")
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    return _undo_filters(lines[:, 0], lines[:, 1:].reshape(height, width, channels))


def _iter_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    offset = len(SIGNATURE)
    while offset < len(data):
        (size,) = struct.unpack_from(">I", data, offset)
        kind, content = data[offset + 4 : offset + 8], data[offset + 8 : offset + 8 + size]
        if data[offset + 8 + size : offset + 12 + size] != struct.pack(">I", zlib.crc32(kind + content)):
            raise ValueError("corrupt PNG image: wrong checksum")
        yield kind, content
        offset += 12 + size


def _undo_filters(filters: Bytes, differences: Bytes) -> Bytes:
    """Undo the PNG filters row by row: each predicts a byte from those to the left and above."""
    pixels = differences.copy()  # sums are modulo 256
    row_above = np.zeros_like(pixels[0])
    for kind, row in zip(filters.tolist(), pixels, strict=True):
        if kind == 1:
            row[:] = np.cumsum(row, axis=0, dtype=np.uint8)
        elif kind == 2:
            row += row_above
        elif kind in (3, 4):  # slow, but rare: the image of a batch has about a dozen such rows
            row[:] = _undo_left_and_above(row.tolist(), row_above.tolist(), _average if kind == 3 else _paeth)
        elif kind:
            raise ValueError("PNG image with an unknown filter")
        row_above = row
    return pixels


def _undo_left_and_above(
    row: PixelRow, row_above: PixelRow, predict: Callable[[int, int, int], int]
) -> PixelRow:
    left = corner = [0] * len(row[0])
    pixels_done: PixelRow = []
    for difference, up in zip(row, row_above, strict=True):
        neighbours = zip(difference, left, up, corner, strict=True)
        left = [(byte + predict(*neighbours_of_byte)) % 256 for byte, *neighbours_of_byte in neighbours]
        corner = up
        pixels_done.append(left)
    return pixels_done


def _average(left: int, up: int, corner: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, corner: int) -> int:
    """Return the neighbour nearest to left + up - corner; on a tie the left one, then the upper one."""
    return min((left, up, corner), key=lambda neighbour: abs(left + up - corner - neighbour))
