"""Trains the network of model.py to point along shortest paths, and leaves what it learned in weights.npz."""

import os

import numpy as np
import torch
from torch import nn

from model import Network, device, predict, save

LEARNING_RATE = 0.007
HIDDEN = 8
ROUNDS = 2
BATCH_SIZE = 32
EPOCHS = 6
SEED = int(os.environ.get("SEED", "0"))


def read(name):
    """The graphs of one file by their number of nodes: weights and pointers."""
    with np.load(f"data/{name}.npz") as file:
        sizes = sorted(int(key.removeprefix("weights_")) for key in file if key.startswith("weights_"))
        return {size: (file[f"weights_{size}"], file[f"pointers_{size}"].astype(np.int64)) for size in sizes}


def batches(graphs, rng):
    """Small parts of all graphs in random order, each of graphs of one size."""
    parts = [
        (size, some)
        for size, (weights, _) in graphs.items()
        for some in np.array_split(rng.permutation(len(weights)), max(1, len(weights) // BATCH_SIZE))
    ]
    for place in rng.permutation(len(parts)):
        size, some = parts[place]
        yield tuple(torch.tensor(array[some], device=device) for array in graphs[size])


def score(graphs):
    """The share of pointers that are right, over all pairs of two nodes."""
    right = []
    for size, (weights, pointers) in graphs.items():
        right.append((predict(weights > 0, weights) == pointers)[:, ~np.eye(size, dtype=bool)].ravel())
    return np.concatenate(right).mean()


def main():
    """Train, save, and measure on the validation graphs."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what a GPU needs to repeat itself
    torch.use_deterministic_algorithms(True)
    rng = np.random.default_rng(SEED)
    graphs = read("train")
    network = Network(HIDDEN, ROUNDS).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    for epoch in range(1, EPOCHS + 1):
        total = count = 0
        for weights, pointers in batches(graphs, rng):
            optimizer.zero_grad()
            logits = network(weights > 0, weights)
            loss = nn.functional.cross_entropy(logits.flatten(0, 2), pointers.flatten())
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        print(f"epoch {epoch} of {EPOCHS}: loss {total / count:.4f}", flush=True)
    save(network)
    print(f"validation share of right pointers: {score(read('validation')):.4f}")


main()
