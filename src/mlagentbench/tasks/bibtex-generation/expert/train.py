"""Encode the library and the examples, learn to rank references, and measure it on files left out."""

import os

import numpy as np
from encoder import encode
from features import GAP, Features, describe, read_passages
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

MAX_ENTRIES = 6
FOLDS = 5
SEED = int(os.environ.get("SEED", "0"))


def fit(features, labels):
    """Return the weight of each feature; the scale of the features is part of it."""
    scaler = StandardScaler().fit(features)
    model = LogisticRegression(C=0.1, max_iter=500, random_state=SEED).fit(
        scaler.transform(features), labels
    )
    return model.coef_[0] / scaler.scale_


def main():
    """Write vectors.npz and weights.npy, which tool.py uses."""
    empty = np.zeros((0, 0), np.float32)
    tool = Features(empty, empty)
    tool.library_vectors = encode([describe(tool.entries[key]) for key in tool.keys])
    passages = read_passages(tool.examples)
    tool.example_vectors = encode(passages)
    np.savez("vectors.npz", library=tool.library_vectors, examples=tool.example_vectors)

    features = np.stack(
        [
            tool.compute(passage, vector, without_file=file)
            for passage, vector, file in zip(passages, tool.example_vectors, tool.files)
        ]
    )
    width = features.shape[-1]
    folds = np.random.default_rng(SEED).permutation(tool.files.max() + 1)[tool.files] % FOLDS
    scores = []
    for fold in range(FOLDS):
        train = folds != fold
        weights = fit(features[train].reshape(-1, width), tool.cited[train].ravel())
        for number in np.flatnonzero(~train):
            example = tool.examples[number]
            gaps = min(example["text"].count(GAP), MAX_ENTRIES)
            best = np.argsort(-features[number] @ weights)[:gaps]
            common = tool.cited[number, best].sum()
            scores.append(2 * common / (len(best) + len(example["keys"])))
    np.save("weights.npy", fit(features.reshape(-1, width), tool.cited.ravel()))
    print(f"validation F1: {np.mean(scores):.4f}")


if __name__ == "__main__":
    main()
