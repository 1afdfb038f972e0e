"""The contexts of the next byte of many streams: hashes of what came before it, in several forms."""

import numpy as np

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
SPACE, NEWLINE = ord(" "), ord("\n")
IS_LETTER = np.zeros(256, bool)
IS_LETTER[[*b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'", *range(128, 256)]] = True
LOWER_CASE = np.arange(256)
LOWER_CASE[ord("A") : ord("Z") + 1] += 32

BYTE_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 13)  # how many of the latest bytes make up a context
# A context of words is the current unit so far and some of the words before it; 1 is the latest of these.
WORD_CONTEXTS = {
    "word": (),
    "word 1": (1,),
    "word 12": (1, 2),
    "word 123": (1, 2, 3),
    "word 2": (2,),
    "word 13": (1, 3),
}
NAMES = (*(f"bytes {count}" for count in BYTE_COUNTS), *WORD_CONTEXTS)
FALLBACKS = {
    "word": "bytes 3",
    "word 1": "word",
    "word 12": "word 1",
    "word 123": "word 12",
    "word 2": "word",
    "word 13": "word 1",
}


def extend_hash(hashes, values):
    """Hash pairs of a hash and a value."""
    hashes = (hashes ^ values.astype(np.uint64)) * MULTIPLIER
    return hashes ^ hashes >> np.uint64(29)


class Contexts:
    """What matters of the bytes read so far.

    A unit is a word with the space before it, or a single other character. The units before the current one
    are remembered in lower case and without white space.
    """

    def __init__(self, streams):
        self.latest_bytes = np.zeros((max(BYTE_COUNTS), streams), np.int64)  # the latest first
        self.unit = np.zeros(streams, np.uint64)  # hash of the current unit so far
        self.unit_ending = np.zeros(streams, np.uint64)  # its last three bytes
        self.word = np.zeros(streams, np.uint64)  # hash of it in lower case without white space; 0 is empty
        self.words = np.zeros((3, streams), np.uint64)  # the same of earlier units, the latest first

    def update(self, read):
        """Read the next byte of each stream; return which streams begin a new unit with it."""
        last = self.latest_bytes[0]
        is_start = ~IS_LETTER[read] | (~IS_LETTER[last] & (last != SPACE))
        is_finished = is_start & (self.word > 0)
        self.words[1:, is_finished] = self.words[:-1, is_finished]
        self.words[0, is_finished] = self.word[is_finished]
        self.word[is_start] = 0
        is_visible = (read != SPACE) & (read != NEWLINE)
        self.word[is_visible] = extend_hash(self.word[is_visible], LOWER_CASE[read[is_visible]] + 1)
        self.unit = extend_hash(np.where(is_start, np.uint64(1), self.unit), read)
        ending = np.where(is_start, np.uint64(0), self.unit_ending)
        self.unit_ending = (ending << np.uint64(8) | read.astype(np.uint64)) & np.uint64(0xFFFFFF)
        self.latest_bytes = np.concatenate([read[None], self.latest_bytes[:-1]])
        return is_start

    def hashes(self):
        """Return the hashes of all contexts, (contexts, streams); the lowest 8 bits are zero."""
        hashes, key = [], np.zeros(len(self.unit), np.uint64)
        for distance, latest in enumerate(self.latest_bytes, 1):
            key = extend_hash(key, latest + 1)
            if distance in BYTE_COUNTS:
                hashes.append(key)
        for number, distances in enumerate(WORD_CONTEXTS.values()):
            key = self.unit + np.uint64(number)
            for distance in distances:
                key = extend_hash(key, self.words[distance - 1])
            hashes.append(key)
        return np.stack(hashes) << np.uint64(8)
