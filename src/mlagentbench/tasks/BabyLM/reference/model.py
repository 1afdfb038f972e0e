"""Predict text byte by byte, for many streams at once, from what followed the same bytes in train.txt."""

import json
from pathlib import Path

import numpy as np

from ngrams import Ngrams

folder = Path(__file__).parent
order = json.loads((folder / "model.json").read_text())["order"]
ngrams = Ngrams(np.fromfile(folder / "train.txt", np.uint8), order)
contexts, bytes_seen = None, 0  # the latest bytes of each stream, packed into one integer; bytes so far


def predict(previous):
    """Take the latest byte of each stream (-1 at the start); return probabilities of the next (streams, 256)."""
    global contexts, bytes_seen
    if (previous < 0).all():
        contexts, bytes_seen = np.zeros(len(previous), np.uint64), 0
    else:
        contexts, bytes_seen = contexts << np.uint64(8) | previous.astype(np.uint64), bytes_seen + 1
    return ngrams.probabilities(contexts, min(bytes_seen, order))
