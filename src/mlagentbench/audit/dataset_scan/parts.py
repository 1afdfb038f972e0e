"""Finds rows of numbers, images and texts in files and in what loaders return."""

import bz2
import contextlib
import csv
import gzip
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .png import decode_png

Array = Any  # an array of numbers
MIN_ROWS = 20  # of a table that is compared
MAX_ROWS = 20_000
MAX_COLUMNS = 4096
MIN_IMAGE_PIXELS = 8
MIN_TEXT_CHARS = 60
MAX_FILE_BYTES = 200_000_000
MAX_DEPTH = 3  # of nested dictionaries and lists
MAX_ITEMS = 50
CHANNELS = (1, 3, 4)
DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".npy", ".npz", ".arff", ".dat", ".png")
DECOMPRESSORS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, csv.Error, struct.error),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile),
)


class DataPart(NamedTuple):
    """Rows of numbers, grey images (number, height, width), or texts, from one place."""

    name: str
    rows: Array | None = None
    images: Array | None = None
    texts: tuple[str, ...] = ()


def data_suffix(path: Path) -> str:
    """The suffix that tells the kind of data, without that of the compression."""
    return Path(path.stem).suffix if path.suffix in DECOMPRESSORS else path.suffix


def read_file(path: Path, name: str) -> Iterator[DataPart]:
    """Read the parts of a file; what cannot be read has none."""
    with contextlib.suppress(*UNREADABLE):
        with DECOMPRESSORS.get(path.suffix, open)(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES)
        suffix = data_suffix(path)
        if suffix == ".npy":
            yield from parts_of(np.load(io.BytesIO(data), allow_pickle=False), name)
        elif suffix == ".npz":
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                for key in arrays.files:
                    yield from parts_of(arrays[key], f"{name}[{key}]")
        elif suffix == ".png":
            yield DataPart(name, images=np.array(decode_png(data), dtype=float)[None])
        else:
            yield from _read_text(data.decode("utf-8", "replace"), name)


def _read_text(text: str, name: str) -> Iterator[DataPart]:
    """The numeric columns of a table, and its long cells or the whole file as texts."""
    lines = text[:100_000].splitlines()[1:20]
    used = (mark for mark in ",\t;" if lines and all(mark in line for line in lines))
    delimiter = next(used, " ")
    table = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
    width = len(table[-1]) if table else 0
    body = [row for row in table if len(row) == width]
    is_table = width >= 2 and len(body) >= MIN_ROWS and len(body) > 0.9 * len(table)
    if is_table:
        columns = [[_to_number(cell) for cell in column] for column in zip(*body[1:], strict=True)]
        numeric = [column for column in columns if np.isfinite(column).mean() > 0.5]
        if len(numeric) >= 2:
            yield DataPart(name, rows=np.array(numeric).T[:MAX_ROWS])
    cells = [cell for row in body for cell in row] if is_table else [text]
    yield from _texts(cells, name)


def _to_number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _texts(candidates: list[str], name: str) -> Iterator[DataPart]:
    if texts := tuple(text for text in candidates if len(text) >= MIN_TEXT_CHARS and " " in text):
        yield DataPart(name, texts=texts[:MAX_ROWS])


def parts_of(value: Any, name: str, depth: int = 0) -> Iterator[DataPart]:
    """The parts of an array, a data frame, or a collection of them."""
    if hasattr(value, "select_dtypes"):
        value = value.select_dtypes("number").to_numpy(dtype=float)
    if isinstance(value, np.ndarray):
        yield from _parts_of_array(value, name)
    elif depth == MAX_DEPTH:
        return
    elif isinstance(value, dict):
        for key, item in list(value.items())[:MAX_ITEMS]:
            yield from parts_of(item, f"{name}.{key}", depth + 1)
    elif isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        yield from _texts(list(value), name)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value[:MAX_ITEMS]):
            yield from parts_of(item, f"{name}[{number}]", depth + 1)
    elif isinstance(getattr(value, "data", None), np.ndarray) or hasattr(
        getattr(value, "data", None), "select_dtypes"
    ):
        yield from parts_of(value.data, f"{name}.data", depth + 1)


def _parts_of_array(array: Array, name: str) -> Iterator[DataPart]:
    if array.dtype.kind in "US":
        yield from _texts([str(item) for item in array.ravel()[:MAX_ROWS]], name)
    if array.dtype.kind not in "biuf" or array.ndim < 2 or not array.size:
        return
    array = array[:MAX_ROWS].astype(float)
    is_single_image = array.ndim == 3 and array.shape[-1] in CHANNELS
    grey = _to_grey(array[None] if is_single_image else array)
    if grey is not None:
        yield DataPart(name, images=grey)
    rows = array.reshape(len(array), -1)
    if not is_single_image and len(rows) >= MIN_ROWS and 2 <= rows.shape[1] <= MAX_COLUMNS:
        yield DataPart(name, rows=rows)


def _to_grey(array: Array) -> Array | None:
    """Images without channels; None if the array holds no images."""
    if array.ndim == 4 and array.shape[-1] in CHANNELS:
        array = array[..., :3].mean(axis=-1)
    elif array.ndim == 4 and array.shape[1] in CHANNELS:
        array = array[:, :3].mean(axis=1)
    return array if array.ndim == 3 and min(array.shape[1:]) >= MIN_IMAGE_PIXELS else None
