"""Rank references with the learned weights, and return one complete BibTeX entry for each gap."""

import numpy as np
import torch
from encoder import encode
from features import GAP, Features
from library import write_bibtex

MAX_ENTRIES = 6

torch.set_num_threads(1)  # a passage is short: on busy cores a second thread delays every product

with np.load("vectors.npz") as vectors:
    tool = Features(vectors["library"], vectors["examples"])
weights = np.load("weights.npy")


def cite(passage):
    """Return BibTeX entries for the gaps of one passage, as an array of bytes."""
    text = bytes(passage).decode()
    plain = text.replace(GAP, " ")
    scores = tool.compute(plain, encode([plain])[0]) @ weights
    gaps = min(max(text.count(GAP), 1), MAX_ENTRIES)
    best = [tool.keys[row] for row in np.argsort(-scores)[:gaps]]
    answer = "\n".join(write_bibtex(key, tool.entries[key]) for key in best)
    return np.frombuffer(answer.encode(), np.uint8)
