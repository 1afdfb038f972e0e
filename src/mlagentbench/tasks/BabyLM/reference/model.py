"""Predicts text byte by byte, many streams at once, from what followed the same bytes in train.txt."""

import json
from pathlib import Path

import numpy as np

from ngrams import Ngrams

folder = Path(__file__).parent
order = json.loads((folder / "model.json").read_text())["order"]
ngrams = Ngrams(np.fromfile(folder / "train.txt", np.uint8), order)
runs, seen = None, 0  # the latest bytes of each stream, packed into one number; how many bytes came so far


def predict(previous):
    """Take the latest byte of each stream, -1 at the start; return the chances of the next, (streams, 256)."""
    global runs, seen
    if (previous < 0).all():
        runs, seen = np.zeros(len(previous), np.uint64), 0
    else:
        runs, seen = runs << np.uint64(8) | previous.astype(np.uint64), seen + 1
    return ngrams.chances(runs, min(seen, order))
