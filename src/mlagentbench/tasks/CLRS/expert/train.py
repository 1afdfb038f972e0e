"""Train the network of model.py on single steps of the algorithm, and save it in weights.npz."""

import os

import numpy as np
import torch
from model import INPUTS, Network, device, make_inputs, predict, save
from torch import nn

HIDDEN = 16
LEARNING_RATE, STEPS, BATCH_SIZE = 0.01, 600, 8192
REFINING_STEPS, REFINING_ROWS = 800, 100_000
MAX_LOGIT = 10.0  # half of these rows are shorter paths, or decisions of which the network is not surer
LENGTH_WEIGHT = 100.0  # of the squared error of lengths in the loss
SCALES = (0.3, 1.5)  # lengths are multiplied by a factor in this range, which changes no pointer
SEED = int(os.environ.get("SEED", "0"))

is_length = torch.arange(INPUTS, device=device) < 3  # columns of the inputs


def read(name):
    """Return the weights, pointers and distances after each step of the graphs in one file, by their size."""
    with np.load(f"data/{name}.npz") as file:
        sizes = sorted(int(key.removeprefix("weights_")) for key in file if key.startswith("weights_"))
        return {
            size: [file[f"{part}_{size}"] for part in ("weights", "pointers", "distance_steps")]
            for size in sizes
        }


def build_rows(graphs):
    """Return inputs and targets of every step and pair: is the path through k shorter, and its length."""
    inputs, targets = [], []
    for size, (weights, _, distances) in graphs.items():
        before = torch.tensor(np.where(weights > 0, weights, np.inf))
        before[:, range(size), range(size)] = 0
        for k in range(size):
            after, exists = torch.tensor(distances[:, k]), before.isfinite()
            inputs.append(make_inputs(before.masked_fill(~exists, 0), exists, k).flatten(0, 2))
            is_shorter = after < before
            step = [is_shorter.float(), after.masked_fill(~is_shorter, 0)]
            targets.append(torch.stack(step, dim=-1).flatten(0, 2))
            before = after
    return torch.cat(inputs).to(device), torch.cat(targets).to(device)


def rescale(inputs, targets):
    """Multiply the lengths of each row by a random factor."""
    scale = torch.empty(len(inputs), 1, device=device).uniform_(*SCALES)
    return torch.where(is_length, inputs * scale, inputs), targets * torch.cat([scale**0, scale], dim=1)


def compute_loss(network, inputs, targets):
    """Return the cross-entropy of the decisions plus the squared error of the lengths of shorter paths."""
    is_shorter, lengths = targets.unbind(dim=-1)
    logits, predicted = network(inputs)
    errors = ((predicted - lengths) ** 2 * is_shorter).sum() / is_shorter.sum()
    return nn.functional.binary_cross_entropy_with_logits(logits, is_shorter) + LENGTH_WEIGHT * errors


def train(network, inputs, targets):
    """Train with Adam on random rows."""
    optimizer = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=STEPS)
    total = 0.0
    for step in range(1, STEPS + 1):
        rows = torch.randint(len(inputs), (BATCH_SIZE,), device=device)
        loss = compute_loss(network, *rescale(inputs[rows], targets[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % 100 == 0:
            print(f"step {step} of {STEPS}: loss {total / 100:.5f}", flush=True)
            total = 0.0


def refine(network, inputs, targets):
    """Continue with L-BFGS on a fixed set of rows, half of them difficult ones."""
    with torch.no_grad():
        logits = torch.cat([network(part)[0] for part in inputs.split(100_000)])
    difficult = torch.nonzero((targets[:, 0] > 0) | (logits.abs() < MAX_LOGIT)).squeeze(1)
    rows = torch.randint(len(inputs), (REFINING_ROWS,), device=device)
    rows[::2] = difficult[torch.randint(len(difficult), (REFINING_ROWS // 2,), device=device)]
    inputs, targets = rescale(inputs[rows], targets[rows])
    optimizer = torch.optim.LBFGS(
        network.parameters(),
        max_iter=REFINING_STEPS,
        history_size=30,
        tolerance_grad=0,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def compute_gradients():
        optimizer.zero_grad()
        loss = compute_loss(network, inputs, targets)
        loss.backward()
        return loss

    optimizer.step(compute_gradients)
    print(f"refined: loss {compute_loss(network, inputs, targets).item():.7f}", flush=True)


def score(graphs):
    """Return the fraction of correct pointers over all pairs of different nodes."""
    is_correct = []
    for size, (weights, pointers, _) in graphs.items():
        is_correct.append((predict(weights > 0, weights) == pointers)[:, ~np.eye(size, dtype=bool)].ravel())
    return np.concatenate(is_correct).mean()


def main():
    """Train, save, and evaluate on the validation graphs."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # more threads help little, and are much slower on busy cores
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True)
    inputs, targets = build_rows(read("train"))
    network = Network(HIDDEN).to(device)
    train(network, inputs, targets)
    refine(network, inputs, targets)
    save(network)
    print(f"validation fraction of correct pointers: {score(read('validation')):.4f}")


main()
