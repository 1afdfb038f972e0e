"""Probabilities of the next byte from what followed each context in the training text, and in the streams."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from contexts import FALLBACKS, MULTIPLIER, NAMES, extend_hash

PRUNED = ("bytes 13", "word 123", "word 13")  # contexts that occur only once are dropped, to save memory
RECENT = (
    "bytes 3",
    "bytes 5",
    "bytes 7",
    "word",
    "word 1",
)  # contexts whose followers in the streams are counted
RECENT_DISCOUNT = 0.5


def count_keys(keys):
    """Sort keys (a context and the byte that followed), and return the distinct ones with their counts."""
    keys = np.sort(keys, axis=None)
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[first], np.minimum(np.diff(first, append=len(keys)), 65535).astype(np.uint16)


def drop_single(keys, counts):
    """Drop the contexts that occurred only once."""
    contexts, is_single = keys >> np.uint64(8), counts == 1
    is_single[1:] &= contexts[1:] != contexts[:-1]
    is_single[:-1] &= contexts[:-1] != contexts[1:]
    return keys[~is_single], counts[~is_single]


def estimate_discounts(counts):
    """Return what is subtracted from counts of 0, 1, 2 and more, as in modified Kneser-Ney smoothing."""
    one, two, three, four = (max(1, np.count_nonzero(counts == count)) for count in (1, 2, 3, 4))
    share = one / (one + 2 * two)
    values = [0, 1 - 2 * share * two / one, 2 - 3 * share * three / two, 3 - 4 * share * four / three]
    return np.clip(values, [0, 0.1, 0.1, 0.1], [0, 0.99, 1.9, 2.9]).astype(np.float32)


class Ngrams:
    """Counts from the training text; each context falls back on a shorter one."""

    def __init__(self, tables, symbols, size):
        """`tables` holds keys, counts and discounts by context; `symbols` maps bytes to 0 ... size - 1."""
        self.tables, self.symbols, self.size = tables, symbols, size

    @staticmethod
    def count(keys):
        """Return the tables for keys of shape (contexts, ...), one table per context."""

        def make_table(number):
            table = count_keys(keys[number])
            discounts = estimate_discounts(table[1])
            return (*(drop_single(*table) if NAMES[number] in PRUNED else table), discounts)

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(make_table, range(len(NAMES))))

    def probabilities(self, hashes):
        """Return for all contexts: probabilities (contexts, streams, size), total counts, distinct bytes."""
        streams = hashes.shape[1]
        probabilities = np.empty((len(NAMES), streams, self.size), np.float32)
        totals, distinct = np.empty((2, len(NAMES), streams), np.float32)
        for number, (keys, counts, discounts) in enumerate(self.tables):
            order = np.argsort(hashes[number])  # sorted queries are answered faster
            starts, ends = np.empty((2, streams), np.int64)
            starts[order] = np.searchsorted(keys, hashes[number][order])
            ends[order] = np.searchsorted(keys, hashes[number][order] | np.uint64(255), side="right")
            lengths = ends - starts
            stream = np.repeat(np.arange(streams), lengths)
            entries = np.arange(len(stream)) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
            count, discount = counts[entries].astype(np.float32), discounts[np.minimum(counts[entries], 3)]
            total = np.bincount(stream, count, streams).astype(np.float32)
            left = np.where(total > 0, np.bincount(stream, discount, streams) / np.maximum(total, 1), 1)
            probabilities[number] = self._fallback(number, probabilities) * left[:, None].astype(np.float32)
            followers = self.symbols[(keys[entries] & np.uint64(255)).astype(np.int64)]
            probabilities[number, stream, followers] += (count - discount) / total[stream]
            totals[number], distinct[number] = total, lengths
        return probabilities, totals, distinct

    def _fallback(self, number, probabilities):
        name = NAMES[number]
        if name in FALLBACKS:
            return probabilities[NAMES.index(FALLBACKS[name])]
        return probabilities[number - 1] if number else np.float32(1 / self.size)


class RecentCounts:
    """Counts of what followed some contexts in the streams themselves, shared by the streams of a group."""

    def __init__(self, groups, size):
        bits = int(np.ceil(np.log2(len(groups)))) + 10
        self.groups, self.shift = groups, np.uint64(64 - bits)
        self.tables = np.zeros((len(RECENT), 1 << bits, size), np.uint8)
        self.rows = np.zeros((len(RECENT), len(groups)), np.int64)

    def probabilities(self, hashes, fallbacks):
        """Return the same as Ngrams.probabilities; `fallbacks` are the probabilities of all contexts."""
        numbers = [NAMES.index(name) for name in RECENT]
        self.rows = (extend_hash(hashes[numbers], self.groups) * MULTIPLIER >> self.shift).astype(np.int64)
        counts = np.stack([table[rows] for table, rows in zip(self.tables, self.rows, strict=True)]).astype(
            np.float32
        )
        totals, distinct = counts.sum(axis=2), np.count_nonzero(counts, axis=2).astype(np.float32)
        left = np.where(totals > 0, RECENT_DISCOUNT * distinct, 1)[:, :, None]
        probabilities = np.maximum(counts - RECENT_DISCOUNT, 0) + left * fallbacks[numbers]
        return probabilities.astype(np.float32) / np.maximum(totals, 1)[:, :, None], totals, distinct

    def update(self, symbols):
        """Count the next symbol of each stream."""
        for table, rows in zip(self.tables, self.rows, strict=True):
            table[rows, symbols] = np.minimum(table[rows, symbols], 254) + 1
