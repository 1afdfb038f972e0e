"""Counts what follows each run of bytes, and predicts from the longest runs that are known (modified Kneser-Ney)."""

import numpy as np


class Ngrams:
    """Chances of the next byte after up to `order` bytes, at most seven."""

    def __init__(self, text, order):
        """A key holds the bytes of a run, the last one lowest; for each order there are sorted keys and counts."""
        self.keys, self.counts, self.discounts = [], [], []
        keys = text.astype(np.uint64)
        for back in range(1, order + 1):
            keys = keys[1:] | text[:-back].astype(np.uint64) << np.uint64(8 * back)
        keys, counts = np.unique(keys, return_counts=True)
        for length in range(order, -1, -1):
            self.keys.insert(0, keys)
            self.counts.insert(0, counts)
            self.discounts.insert(0, discounts(counts))
            if length:  # for shorter runs it counts how many different bytes they follow, not how often they occur
                keys, counts = np.unique(keys & np.uint64(2 ** (8 * length) - 1), return_counts=True)

    def chances(self, runs, order):
        """For each stream's latest bytes, packed as keys are: the chances of the next, (streams, 256)."""
        chances = np.full((len(runs), 256), 1 / 256)
        for length in range(order + 1):
            keys, counts = self.keys[length], self.counts[length]
            first = (runs & np.uint64(2 ** (8 * length) - 1)) << np.uint64(8)
            begin, end = np.searchsorted(keys, first), np.searchsorted(keys, first | np.uint64(255), side="right")
            many = end - begin
            stream = np.repeat(np.arange(len(runs)), many)
            place = np.arange(many.sum()) + np.repeat(begin - np.cumsum(many) + many, many)
            count = counts[place].astype(float)
            less = self.discounts[length][np.minimum(counts[place], 3)]
            total = np.bincount(stream, count, len(runs))
            known = total > 0
            total[~known] = 1
            chances *= np.where(known, np.bincount(stream, less, len(runs)) / total, 1)[:, None]
            chances[stream, (keys[place] & np.uint64(255)).astype(int)] += (count - less) / total[stream]
        return chances


def discounts(counts):
    """What is taken from counts of 0, 1, 2 and more, for the bytes that were not seen."""
    one, two, three, four = (max(1, np.count_nonzero(counts == count)) for count in (1, 2, 3, 4))
    share = one / (one + 2 * two)
    found = [0, 1 - 2 * share * two / one, 2 - 3 * share * three / two, 3 - 4 * share * four / three]
    return np.clip(found, [0, 0.1, 0.1, 0.1], [0, 0.99, 1.9, 2.9])
