"""Downloads images from the URLs that the competition gives, and shrinks them."""

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
PARALLEL_DOWNLOADS, MAX_ATTEMPTS = 16, 3
DOWNLOAD_TIMEOUT_S, RETRY_PAUSE_S = 60, 2
MAX_MISSING_SHARE = 0.02  # of the images
MAX_IMAGE_BYTES = 64_000_000
SIGNATURE = b"\x89PNG\r\n\x1a\n"
SAMPLES_PER_PIXEL = {0: 1, 2: 3, 4: 2, 6: 4}  # by the colour type of a PNG file


def download_images(requested: list[tuple[Any, str]], cache: Path) -> Iterator[tuple[Any, Array]]:
    """Yield each item whose image is available, with the image as uint8 (HEIGHT, WIDTH, 3)."""
    cache.mkdir(exist_ok=True)
    missing = 0
    with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
        urls = [url for _, url in requested]
        images = pool.map(lambda url: _download_small(url, cache), urls)
        for (item, url), result in zip(requested, images, strict=True):
            if isinstance(result, str):
                missing += 1
                print(f"{url}: {result}", flush=True)
                if missing > MAX_MISSING_SHARE * len(requested):
                    pool.shutdown(cancel_futures=True)
                    raise SystemExit(
                        f"{missing} of {len(requested)} images could not be downloaded; run again to continue"
                    )
            else:
                yield item, result


def _download_small(url: str, cache: Path) -> Array | str:
    """Return the small image, from the cache or its URL, or a message if that fails."""
    cached = cache / f"{zlib.crc32(url.encode()):08x}-{Path(urlsplit(url).path).stem}.npy"
    if cached.exists():
        result: Array = np.load(cached)
        return result
    if urlsplit(url).scheme not in ("http", "https"):
        return "not an http or https URL"
    for _ in range(MAX_ATTEMPTS):
        try:
            with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as response:
                small = shrink(decode_png(response.read(MAX_IMAGE_BYTES)))
        except (OSError, ValueError, struct.error, zlib.error) as error:
            problem = f"{type(error).__name__}: {error}"
            time.sleep(RETRY_PAUSE_S)
        else:
            partial = cached.with_suffix(".part")
            with partial.open("wb") as file:
                np.save(file, small)
            partial.replace(cached)
            return small
    return problem


def shrink(image: Array) -> Array:
    """Shrink an image: each new pixel is the mean of the old ones that it covers."""
    rows, columns = (
        np.linspace(0, old, new, endpoint=False).astype(int)
        for old, new in zip(image.shape, (HEIGHT, WIDTH), strict=False)
    )
    sums = np.add.reduceat(np.add.reduceat(image.astype(np.int64), rows, axis=0), columns, axis=1)
    counts = np.outer(np.diff(rows, append=image.shape[0]), np.diff(columns, append=image.shape[1]))
    small: Array = np.rint(sums / counts[:, :, None]).astype(np.uint8)
    return small


def decode_png(data: bytes) -> Array:
    """Return the pixels (height, width, 3) of a PNG file with 8 bits per sample."""
    if not data.startswith(SIGNATURE):
        raise ValueError("not a PNG file")
    offset, packed, header = len(SIGNATURE), b"", b""
    while offset + 12 <= len(data):
        (length,) = struct.unpack(">I", data[offset : offset + 4])
        chunk_type, content = data[offset + 4 : offset + 8], data[offset + 8 : offset + 8 + length]
        header = content if chunk_type == b"IHDR" else header
        packed += content if chunk_type == b"IDAT" else b""
        offset += 12 + length
    width, height, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if bits != 8 or interlaced or colour not in SAMPLES_PER_PIXEL or height < HEIGHT or width < WIDTH:
        raise ValueError(f"unsupported PNG file: {width} x {height}, {bits} bits, colour type {colour}")
    samples = SAMPLES_PER_PIXEL[colour]
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * samples)
    pixels = _undo_filters(lines[:, 0], lines[:, 1:].reshape(height, width, samples))
    return pixels[:, :, :3] if samples >= 3 else pixels[:, :, [0, 0, 0]]


def _undo_filters(filters: Array, lines: Array) -> Array:
    """Undo the PNG filters: a pixel is stored minus a prediction from those left, above, and above left.

    All pixels of a diagonal are computed at once, because they depend only on the two diagonals before.
    """
    height, width, samples = lines.shape
    by_diagonal = np.zeros((height + width, height + 1, samples), np.int16)  # row 0 is above the image
    for diagonal in range(height + width - 1):
        first, end = max(0, diagonal - width + 1), min(height, diagonal + 1)
        rows = np.arange(first, end)
        left, above = by_diagonal[diagonal, first + 1 : end + 1], by_diagonal[diagonal, first:end]
        corner = by_diagonal[diagonal - 1, first:end] if diagonal else np.zeros_like(left)
        to_left, to_above, to_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
        nearest = np.where(to_above <= to_corner, above, corner)
        nearest = np.where((to_left <= to_above) & (to_left <= to_corner), left, nearest)
        filter_type = filters[first:end, None]
        prediction = np.choose(filter_type, [np.zeros_like(left), left, above, (left + above) >> 1, nearest])
        by_diagonal[diagonal + 1, first + 1 : end + 1] = (lines[rows, diagonal - rows] + prediction) & 255
    row, column = np.arange(height)[:, None], np.arange(width)[None, :]
    pixels: Array = by_diagonal[row + column + 1, row + 1].astype(np.uint8)
    return pixels
