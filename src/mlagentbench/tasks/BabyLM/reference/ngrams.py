"""Byte n-gram model with modified Kneser-Ney smoothing."""

import numpy as np


class Ngrams:
    """Probabilities of the next byte after up to `order` bytes of context, at most seven."""

    def __init__(self, text, order):
        """Count n-grams; a key packs the bytes of an n-gram, the last one lowest."""
        self.keys, self.counts, self.discounts = [], [], []
        keys = text.astype(np.uint64)
        for distance in range(1, order + 1):
            keys = keys[1:] | text[:-distance].astype(np.uint64) << np.uint64(8 * distance)
        keys, counts = np.unique(keys, return_counts=True)
        for length in range(order, -1, -1):
            self.keys.insert(0, keys)
            self.counts.insert(0, counts)
            self.discounts.insert(0, discounts(counts))
            if (
                length
            ):  # shorter n-grams count how many different bytes precede them, not how often they occur
                keys, counts = np.unique(keys & np.uint64(2 ** (8 * length) - 1), return_counts=True)

    def probabilities(self, contexts, order):
        """Return the probabilities of the next byte, (streams, 256), for contexts packed like keys."""
        probabilities = np.full((len(contexts), 256), 1 / 256)
        for length in range(order + 1):
            keys, counts = self.keys[length], self.counts[length]
            prefixes = (contexts & np.uint64(2 ** (8 * length) - 1)) << np.uint64(8)
            starts, ends = (
                np.searchsorted(keys, prefixes),
                np.searchsorted(keys, prefixes | np.uint64(255), side="right"),
            )
            lengths = ends - starts
            stream = np.repeat(np.arange(len(contexts)), lengths)
            entries = np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
            count = counts[entries].astype(float)
            discount = self.discounts[length][np.minimum(counts[entries], 3)]
            total = np.bincount(stream, count, len(contexts))
            seen_before = total > 0
            total[~seen_before] = 1
            probabilities *= np.where(seen_before, np.bincount(stream, discount, len(contexts)) / total, 1)[
                :, None
            ]
            probabilities[stream, (keys[entries] & np.uint64(255)).astype(int)] += (count - discount) / total[
                stream
            ]
        return probabilities


def discounts(counts):
    """Return what is subtracted from counts of 0, 1, 2 and more, for the bytes that were not seen."""
    one, two, three, four = (max(1, np.count_nonzero(counts == count)) for count in (1, 2, 3, 4))
    share = one / (one + 2 * two)
    values = [0, 1 - 2 * share * two / one, 2 - 3 * share * three / two, 3 - 4 * share * four / three]
    return np.clip(values, [0, 0.1, 0.1, 0.1], [0, 0.99, 1.9, 2.9])
