"""Decodes PNG images of whole bytes, in numpy alone: the harness has no imaging library."""

import struct
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {2: 3, 6: 4}  # by colour type: RGB, RGBA

Bytes = npt.NDArray[np.uint8]
Row = list[list[int]]  # the channels of each pixel


def decode(data: bytes) -> Bytes:
    """The pixels as height x width x channels; only 8 bits, RGB or RGBA, and not interlaced."""
    if not data.startswith(SIGNATURE):
        raise ValueError("not a PNG image")
    chunks = list(_chunks(data))
    if not chunks or chunks[0][0] != b"IHDR":
        raise ValueError("a PNG image without a header")
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth != 8 or colour not in CHANNELS or interlace:
        raise ValueError(
            f"a PNG image of {depth} bits, colour type {colour}, interlace {interlace} is not decoded here"
        )
    channels = CHANNELS[colour]
    packed = b"".join(content for kind, content in chunks if kind == b"IDAT")
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    return _unfiltered(lines[:, 0], lines[:, 1:].reshape(height, width, channels))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        if data[at + 8 + size : at + 12 + size] != struct.pack(">I", zlib.crc32(kind + content)):
            raise ValueError("a damaged PNG image")
        yield kind, content
        at += 12 + size


def _unfiltered(filters: Bytes, differences: Bytes) -> Bytes:
    """Undo the filters of PNG, row by row: each predicts a byte from those to the left and above."""
    pixels = differences.copy()  # all sums are modulo 256
    above = np.zeros_like(pixels[0])
    for kind, row in zip(filters.tolist(), pixels, strict=True):
        if kind == 1:
            row[:] = np.cumsum(row, axis=0, dtype=np.uint8)
        elif kind == 2:
            row += above
        elif kind in (3, 4):  # slow, but rare: an image of a whole batch has about a dozen such rows
            row[:] = _from_left_and_above(row.tolist(), above.tolist(), _average if kind == 3 else _paeth)
        elif kind:
            raise ValueError("a PNG image with an unknown filter")
        above = row
    return pixels


def _from_left_and_above(row: Row, above: Row, predict: Callable[[int, int, int], int]) -> Row:
    left = corner = [0] * len(row[0])
    done: Row = []
    for difference, up in zip(row, above, strict=True):
        neighbours = zip(difference, left, up, corner, strict=True)
        left = [(byte + predict(*others)) % 256 for byte, *others in neighbours]
        corner = up
        done.append(left)
    return done


def _average(left: int, up: int, corner: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, corner: int) -> int:
    """The neighbour nearest to left + up - corner; on a tie the left one, then the upper one."""
    return min((left, up, corner), key=lambda each: abs(left + up - corner - each))
