"""Finds out how many bytes of context serve counts of short runs best, and leaves that for model.py."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np

ORDERS = (5, 6, 7)  # a run and the byte after it fill a number of 64 bits


def evaluate(predict, text):
    """Bits per byte of some texts, (streams, length), asked for as the grader does."""
    previous, bits = np.full(len(text), -1), 0.0
    for column in text.T.astype(np.int64):
        chances = predict(previous)
        bits -= np.log2(np.maximum(chances[np.arange(len(text)), column], 1e-9)).sum()
        previous = column
    return bits / text.size


def score(order, texts):
    """Bits per byte of model.py as it will be graded: it reads what was saved."""
    Path("model.json").write_text(json.dumps({"order": order}))
    sys.modules.pop("model", None)
    return evaluate(importlib.import_module("model").predict, texts)


def main():
    """Choose on one part of the validation text, and measure on another."""
    known = np.fromfile("validation.txt", np.uint8)
    first = np.arange(192) * (len(known) // 192)
    texts = known[first[:, None] + np.arange(384)]
    found = {}
    for order in ORDERS:
        found[order] = score(order, texts[::2])
        print(f"{order} bytes of context: {found[order]:.4f} bits per byte", flush=True)
    best = score(min(found, key=found.get), texts[1::2])
    words = len(Path("validation.txt").read_bytes().split())
    print(f"perplexity of a word: {2 ** (best * len(known) / words):.0f}")
    print(f"validation bits per byte: {best:.4f}")


main()
