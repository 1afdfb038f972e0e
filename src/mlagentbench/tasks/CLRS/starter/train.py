"""Train the network of model.py to predict the pointers of shortest paths, and save it in weights.npz."""

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
    """Return the weights and pointers of the graphs in one file, by their number of nodes."""
    with np.load(f"data/{name}.npz") as file:
        sizes = sorted(int(key.removeprefix("weights_")) for key in file if key.startswith("weights_"))
        return {size: (file[f"weights_{size}"], file[f"pointers_{size}"].astype(np.int64)) for size in sizes}


def batches(graphs, rng):
    """Yield batches of graphs of one size, in random order."""
    parts = [
        (size, indices)
        for size, (weights, _) in graphs.items()
        for indices in np.array_split(rng.permutation(len(weights)), max(1, len(weights) // BATCH_SIZE))
    ]
    for number in rng.permutation(len(parts)):
        size, indices = parts[number]
        yield tuple(torch.tensor(array[indices], device=device) for array in graphs[size])


def score(graphs):
    """Return the fraction of correct pointers over all pairs of different nodes."""
    is_correct = []
    for size, (weights, pointers) in graphs.items():
        is_correct.append((predict(weights > 0, weights) == pointers)[:, ~np.eye(size, dtype=bool)].ravel())
    return np.concatenate(is_correct).mean()


def main():
    """Train, save, and evaluate on the validation graphs."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
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
    print(f"validation fraction of correct pointers: {score(read('validation')):.4f}")


main()
