"""Fetches pictures from the addresses that the competition gives, and makes them small."""

import struct
import time
import urllib.request
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

HEIGHT, WIDTH = 96, 160
AT_ONCE, ATTEMPTS = 16, 3  # pictures fetched at a time, tries for each
PATIENCE, PAUSE = 60, 2  # seconds to wait for a picture, and after a try that failed
LOST = 0.02  # the share of pictures that may be gone
LARGEST = 64_000_000  # bytes of one picture
SIGNATURE = b"\x89PNG\r\n\x1a\n"
SAMPLES = {0: 1, 2: 3, 4: 2, 6: 4}  # bytes of one pixel, by the colour type of a PNG file


def fetch_all(wanted: list[tuple[Any, str]], cache: Path) -> Iterator[tuple[Any, Array]]:
    """Each thing that has a picture with it, as (HEIGHT, WIDTH, 3) bytes; `cache` keeps them for another time."""
    cache.mkdir(exist_ok=True)
    lost = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        addresses = [address for _, address in wanted]
        pictures = pool.map(lambda address: _small(address, cache), addresses)
        for (thing, address), found in zip(wanted, pictures, strict=True):
            if isinstance(found, str):
                lost += 1
                print(f"{address}: {found}", flush=True)
                if lost > LOST * len(wanted):
                    pool.shutdown(cancel_futures=True)
                    raise SystemExit(
                        f"{lost} of {len(wanted)} pictures could not be fetched; run again to go on"
                    )
            else:
                yield thing, found


def _small(address: str, cache: Path) -> Array | str:
    """The small picture, from the cache or from its address; or why there is none."""
    kept = cache / f"{zlib.crc32(address.encode()):08x}-{Path(urlsplit(address).path).stem}.npy"
    if kept.exists():
        found: Array = np.load(kept)
        return found
    if urlsplit(address).scheme not in ("http", "https"):
        return "not an address on the web"
    for _ in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
                small = shrunk(decoded(answer.read(LARGEST)))
        except (OSError, ValueError, struct.error, zlib.error) as error:
            trouble = f"{type(error).__name__}: {error}"
            time.sleep(PAUSE)
        else:
            part = kept.with_suffix(".part")
            with part.open("wb") as file:
                np.save(file, small)
            part.replace(kept)
            return small
    return trouble


def shrunk(picture: Array) -> Array:
    """The picture at its small size: each new pixel is the mean of the old ones that it covers."""
    rows, columns = (
        np.linspace(0, old, new, endpoint=False).astype(int)
        for old, new in zip(picture.shape, (HEIGHT, WIDTH), strict=False)
    )
    sums = np.add.reduceat(np.add.reduceat(picture.astype(np.int64), rows, axis=0), columns, axis=1)
    counts = np.outer(np.diff(rows, append=picture.shape[0]), np.diff(columns, append=picture.shape[1]))
    small: Array = np.rint(sums / counts[:, :, None]).astype(np.uint8)
    return small


def decoded(data: bytes) -> Array:
    """The pixels (height, width, 3) of a PNG file with 8 bits a sample, as the framegrabs are."""
    if not data.startswith(SIGNATURE):
        raise ValueError("not a PNG file")
    at, packed, header = len(SIGNATURE), b"", b""
    while at + 12 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        header = content if kind == b"IHDR" else header
        packed += content if kind == b"IDAT" else b""
        at += 12 + length
    width, height, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if bits != 8 or interlaced or colour not in SAMPLES or height < HEIGHT or width < WIDTH:
        raise ValueError(
            f"a PNG file of {width} x {height}, {bits} bits, colour type {colour}: not as expected"
        )
    samples = SAMPLES[colour]
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * samples)
    pixels = _unfiltered(lines[:, 0], lines[:, 1:].reshape(height, width, samples))
    return pixels[:, :, :3] if samples >= 3 else pixels[:, :, [0, 0, 0]]


def _unfiltered(filters: Array, lines: Array) -> Array:
    """Undo the filters of PNG: each pixel was stored less a forecast from the pixels left, above, and left above.

    All pixels of a diagonal can be done at once, as they depend on the two diagonals before.
    """
    height, width, samples = lines.shape
    done = np.zeros(
        (height + width, height + 1, samples), np.int16
    )  # by diagonal and row; row 0 is above the picture
    for diagonal in range(height + width - 1):
        first, end = max(0, diagonal - width + 1), min(height, diagonal + 1)
        rows = np.arange(first, end)
        left, above = done[diagonal, first + 1 : end + 1], done[diagonal, first:end]
        corner = done[diagonal - 1, first:end] if diagonal else np.zeros_like(left)
        to_left, to_above, to_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
        nearest = np.where(to_above <= to_corner, above, corner)
        nearest = np.where((to_left <= to_above) & (to_left <= to_corner), left, nearest)
        kind = filters[first:end, None]
        forecast = np.choose(kind, [np.zeros_like(left), left, above, (left + above) >> 1, nearest])
        done[diagonal + 1, first + 1 : end + 1] = (lines[rows, diagonal - rows] + forecast) & 255
    row, column = np.arange(height)[:, None], np.arange(width)[None, :]
    pixels: Array = done[row + column + 1, row + 1].astype(np.uint8)
    return pixels
