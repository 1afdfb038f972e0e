"""Rates at which rows, images and texts of a task are found in another data set."""

import math
import re
from functools import cached_property

import numpy as np

from .parts import Array

SAMPLE_SIZE = 120  # rows or images of the task that are looked up
LOG_BIN_WIDTH = 0.002  # values in neighbouring bins are equal: a tolerance of about 0.3 %
SMALLEST_VALUE = 1e-9  # smaller ones are zero
MIN_ROW_OVERLAP = 0.95  # of the values of a row
MIN_DISTINCT_VALUES = 4  # of a row, besides the commonest value of the data set
MAX_WIDTH_RATIO = 3  # between the columns of two tables
MIN_STANDARD_ERRORS = 2.5  # between the rates of rows and of the control
MIN_CORRELATION = 0.985
MIN_CORRELATED_COLUMNS = 16
MAX_EXTRA_COLUMNS = 3  # such as an id and a label
THUMBNAIL_PIXELS = 8
SHINGLE_WORDS = 5
MIN_TEXT_OVERLAP = 0.5

BinIndex = dict[int, tuple[Array, Array]]


def sample(items: Array) -> Array:
    """A few items, evenly spread."""
    return items[np.linspace(0, len(items) - 1, min(SAMPLE_SIZE, len(items))).astype(int)]


class KnownRows:
    """The rows of a data set, indexed by their values."""

    def __init__(self, rows: Array) -> None:
        self.rows = np.nan_to_num(rows)

    @cached_property
    def index(self) -> BinIndex:
        """For each bin, the rows with values in it, and how many; without the bin of the commonest value."""
        bins = _to_bins(self.rows)
        values, counts = np.unique(bins, return_counts=True)
        self.commonest = int(values[counts.argmax()])
        numbers = np.repeat(np.arange(len(bins)), bins.shape[1])
        pairs, counts = np.unique(np.stack([bins.ravel(), numbers], axis=1), axis=0, return_counts=True)
        kept = pairs[:, 0] != self.commonest
        pairs, counts = pairs[kept], counts[kept]
        self.value_counts = np.bincount(pairs[:, 1], counts, minlength=len(bins))
        distinct = np.bincount(pairs[:, 1], minlength=len(bins))
        # A row of few values, such as a row of bits, is contained in many others by chance.
        self.value_counts[distinct < MIN_DISTINCT_VALUES] = np.inf
        starts = np.flatnonzero(np.diff(pairs[:, 0])) + 1
        groups = zip(np.split(pairs, starts), np.split(counts, starts), strict=True)
        return {int(group[0, 0]): (group[:, 1], each) for group, each in groups if len(group)}

    def contains(self, bins: Array) -> bool:
        """Whether nearly all values of a row are in one row of the data set, in any order."""
        index = self.index
        values, counts = np.unique(bins[bins != self.commonest], return_counts=True)
        if len(values) < MIN_DISTINCT_VALUES:
            return False
        overlap = np.zeros(len(self.rows))
        for value, count in zip(values, counts, strict=True):
            there = np.zeros(len(self.rows))
            for neighbour in (0,) if value == 0 else range(int(value) - 1, int(value) + 2):
                if neighbour in index:
                    numbers, each = index[neighbour]
                    there[numbers] += each
            overlap += np.minimum(there, count)
        needed = np.where(np.isinf(self.value_counts), np.inf, np.minimum(self.value_counts, counts.sum()))
        return bool(np.any(overlap >= MIN_ROW_OVERLAP * needed))


def match_rows(task_rows: Array, known: KnownRows) -> float:
    """Return the rate of rows that are in a data set, above the rate of a control."""
    rows = np.nan_to_num(sample(task_rows))
    width, known_width = rows.shape[1], known.rows.shape[1]
    if width > MAX_WIDTH_RATIO * known_width or known_width > MAX_WIDTH_RATIO * width:
        return 0.0
    plain = _without_ids(rows)
    scaled = plain * (np.abs(known.rows).max() / (np.abs(plain).max(initial=0.0) or 1.0))
    variants = [rows, scaled, known.rows.max() - scaled] if plain.shape[1] >= 2 else [rows]
    rates = [_contained_rate(each, known) for each in variants]
    controls = [_contained_rate(_shuffle_columns(each), known) for each in variants]
    differences = [
        _significant_difference(rate, control, len(rows))
        for rate, control in zip(rates, controls, strict=True)
    ]
    return max(*differences, _correlated_rate(rows, known.rows))


def _significant_difference(rate: float, control: float, count: int) -> float:
    """The difference of two rates among `count` rows each; 0 if it may be chance."""
    variance = (rate * (1 - rate) + control * (1 - control)) / count
    difference = rate - control
    return difference if difference > MIN_STANDARD_ERRORS * math.sqrt(variance) else 0.0


def _contained_rate(rows: Array, known: KnownRows) -> float:
    return sum(map(known.contains, _to_bins(rows))) / len(rows)


def _without_ids(rows: Array) -> Array:
    """The columns without those that number the rows."""
    is_id = [len(set(column)) == len(rows) and np.all(column == np.round(column)) for column in rows.T]
    return rows[:, ~np.array(is_id, dtype=bool)]


def _shuffle_columns(rows: Array) -> Array:
    random = np.random.default_rng(0)
    return np.stack([random.permutation(column) for column in rows.T], axis=1)


def _to_bins(rows: Array) -> Array:
    """The bin of each value on a logarithmic scale; zero is a bin of its own."""
    logs = np.round(np.log(np.maximum(np.abs(rows), SMALLEST_VALUE) / SMALLEST_VALUE) / LOG_BIN_WIDTH)
    return (np.sign(rows) * (logs + 2) * (np.abs(rows) > SMALLEST_VALUE)).astype(np.int64)


def _correlated_rate(rows: Array, known: Array) -> float:
    """The rate of rows that correlate with one of the data set, above that of reversed rows."""
    extra = rows.shape[1] - known.shape[1]
    if known.shape[1] < MIN_CORRELATED_COLUMNS or not 0 <= extra <= MAX_EXTRA_COLUMNS:
        return 0.0
    blocks = [rows[:, start : start + known.shape[1]] for start in range(extra + 1)]
    return max(_alike_rate(block, known) - _alike_rate(block[:, ::-1], known) for block in blocks)


def _alike_rate(rows: Array, known: Array) -> float:
    return float((np.max(_normalize(rows) @ _normalize(known).T, axis=1) > MIN_CORRELATION).mean())


def _normalize(rows: Array) -> Array:
    centered = rows - rows.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centered, axis=1, keepdims=True)
    return centered / np.where(norms > SMALLEST_VALUE, norms, np.inf)


def match_images(task_images: Array, known_images: Array) -> float:
    """Return the rate of images that look like one of a data set at any size, above that of mirrored ones."""
    thumbnails, known = make_thumbnails(sample(task_images)), make_thumbnails(known_images)
    mirrored, known_rows = thumbnails[:, :, ::-1], known.reshape(len(known), -1)
    rate, control = (_alike_rate(some.reshape(len(some), -1), known_rows) for some in (thumbnails, mirrored))
    return rate - control


def make_thumbnails(images: Array) -> Array:
    """Reduce images to the means over a grid of parts."""
    edges = [np.linspace(0, size, THUMBNAIL_PIXELS + 1).astype(int) for size in images.shape[1:]]
    sums = np.add.reduceat(images, edges[0][:-1], axis=1)
    sums = np.add.reduceat(sums, edges[1][:-1], axis=2)
    return sums / np.outer(np.diff(edges[0]), np.diff(edges[1]))


def split_into_shingles(text: str) -> frozenset[int]:
    """Hash every sequence of a few words."""
    words = re.findall(r"\w+", text.lower())
    starts = range(len(words) - SHINGLE_WORDS + 1)
    return frozenset(hash(tuple(words[start : start + SHINGLE_WORDS])) for start in starts)


def match_texts(task_texts: list[frozenset[int]], known: frozenset[int]) -> float:
    """Return the rate of texts of which half of the shingles are known."""
    alike = [len(text & known) >= MIN_TEXT_OVERLAP * len(text) for text in task_texts if text]
    return sum(alike) / len(alike) if alike else 0.0
