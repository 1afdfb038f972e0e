"""Build what tool.py needs (so far nothing), and measure it on the example passages."""

import json
import re

import numpy as np
import tool


def read_keys(bibtex):
    """Return the keys of the entries of a text."""
    return re.findall(r"^@\w+\{([^,\s]+),", bibtex, re.MULTILINE)


def evaluate():
    """Return the mean F1 of the keys over the example passages. The grader also compares the fields."""
    scores = []
    with open("examples.json", encoding="utf-8") as file:
        for example in json.load(file):
            answer = tool.cite(np.frombuffer(example["text"].encode(), np.uint8))
            keys = read_keys(bytes(answer).decode())
            common = len(set(keys) & set(example["keys"]))
            scores.append(2 * common / (len(keys) + len(example["keys"])))
    return np.mean(scores)


if __name__ == "__main__":
    print(f"validation F1: {evaluate():.4f}")
