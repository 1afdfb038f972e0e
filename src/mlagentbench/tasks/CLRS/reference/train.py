"""Trains the network of model.py to point along shortest paths, and leaves what it learned in weights.npz."""

import os

import numpy as np
import torch
from torch import nn

from model import Network, device, predict, save

LEARNING_RATE = 0.01
HIDDEN = 32
CHANNELS = 16
BATCH_SIZE = 8
STEPS = 2000
SCALES = (0.7, 1.2)  # by which the weights of a graph are multiplied, which changes no pointer
SEED = int(os.environ.get("SEED", "0"))


def read(name):
    """The graphs of one file by their number of nodes: weights and pointers."""
    with np.load(f"data/{name}.npz") as file:
        sizes = sorted(int(key.removeprefix("weights_")) for key in file if key.startswith("weights_"))
        return {size: (file[f"weights_{size}"], file[f"pointers_{size}"].astype(np.int64)) for size in sizes}


def loss_of(network, weights, pointers):
    """How wrong the pointers of all rounds are, each round counting twice as much as the one before."""
    itself = torch.eye(weights.shape[1], dtype=torch.bool, device=device)
    right = pointers.masked_fill(itself, -100).flatten()  # the number that cross_entropy ignores
    losses = [nn.functional.cross_entropy(logits.flatten(0, 2), right) for logits in network(weights > 0, weights)]
    shares = 2.0 ** torch.arange(len(losses), device=device)
    return torch.stack(losses) @ shares / shares.sum()


def score(graphs):
    """The share of pointers that are right, over all pairs of two nodes."""
    right = []
    for size, (weights, pointers) in graphs.items():
        right.append((predict(weights > 0, weights) == pointers)[:, ~np.eye(size, dtype=bool)].ravel())
    return np.concatenate(right).mean()


def main():
    """Train, save, and measure on the validation graphs."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # small tensors: more gain little, and lose much when the cores are busy
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what a GPU needs to repeat itself
    torch.use_deterministic_algorithms(True)
    rng = np.random.default_rng(SEED)
    graphs = read("train")
    sizes = np.array(list(graphs))
    network = Network(HIDDEN, CHANNELS).to(device)
    optimizer = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=STEPS)
    total = 0.0
    for step in range(1, STEPS + 1):
        weights, pointers = graphs[rng.choice(sizes, p=sizes / sizes.sum())]
        some = rng.choice(len(weights), BATCH_SIZE, replace=False)
        scale = rng.uniform(*SCALES, size=(BATCH_SIZE, 1, 1)).astype(np.float32)
        batch = (weights[some] * scale, pointers[some])
        loss = loss_of(network, *(torch.tensor(array, device=device) for array in batch))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % 100 == 0:
            print(f"step {step} of {STEPS}: loss {total / 100:.4f}", flush=True)
            total = 0.0
    save(network)
    print(f"validation share of right pointers: {score(read('validation')):.4f}")


main()
