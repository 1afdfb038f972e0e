"""Train the network of model.py to predict the pointers of shortest paths, and save it in weights.npz."""

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
WEIGHT_SCALES = (0.7, 1.2)  # weights are multiplied by a factor in this range, which changes no pointer
SEED = int(os.environ.get("SEED", "0"))


def read(name):
    """Return the weights and pointers of the graphs in one file, by their number of nodes."""
    with np.load(f"data/{name}.npz") as file:
        sizes = sorted(int(key.removeprefix("weights_")) for key in file if key.startswith("weights_"))
        return {size: (file[f"weights_{size}"], file[f"pointers_{size}"].astype(np.int64)) for size in sizes}


def compute_loss(network, weights, pointers):
    """Return the cross-entropy of all rounds, each round weighted twice as much as the one before."""
    is_same_node = torch.eye(weights.shape[1], dtype=torch.bool, device=device)
    targets = pointers.masked_fill(is_same_node, -100).flatten()  # ignored by cross_entropy
    losses = [
        nn.functional.cross_entropy(logits.flatten(0, 2), targets) for logits in network(weights > 0, weights)
    ]
    round_weights = 2.0 ** torch.arange(len(losses), device=device)
    return torch.stack(losses) @ round_weights / round_weights.sum()


def score(graphs):
    """Return the fraction of correct pointers over all pairs of different nodes."""
    is_correct = []
    for size, (weights, pointers) in graphs.items():
        is_correct.append((predict(weights > 0, weights) == pointers)[:, ~np.eye(size, dtype=bool)].ravel())
    return np.concatenate(is_correct).mean()


def main():
    """Train, save, and evaluate on the validation graphs."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # more threads help little, and are much slower on busy cores
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
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
        indices = rng.choice(len(weights), BATCH_SIZE, replace=False)
        scale = rng.uniform(*WEIGHT_SCALES, size=(BATCH_SIZE, 1, 1)).astype(np.float32)
        batch = (weights[indices] * scale, pointers[indices])
        loss = compute_loss(network, *(torch.tensor(array, device=device) for array in batch))
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
    print(f"validation fraction of correct pointers: {score(read('validation')):.4f}")


main()
