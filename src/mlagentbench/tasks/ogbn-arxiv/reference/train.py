"""Predict the topics of papers with perceptrons on neighbour-averaged words, then propagate labels."""

import os

import numpy as np
import pandas as pd
import torch
from scipy.sparse import csr_matrix
from torch import nn

LEARNING_RATE = 0.01
WEIGHT_DECAY = 5e-4
DROPOUT = 0.5
HIDDEN = 64
STEPS = 150  # on all labelled papers at once
MODELS = 3
HOPS = 2
SPREADS, KEPT_SHARE = 10, 0.2
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def read_labels(part):
    """Return the nodes of one part and their labels as tensors."""
    table = pd.read_csv(f"data/{part}_labels.csv").to_numpy().copy()
    return torch.tensor(table[:, 0], device=device), torch.tensor(table[:, 1], device=device)


def make_neighbour_average(count):
    """Return a function that averages rows over each paper and its neighbours."""
    edges = pd.read_csv("data/edges.csv").to_numpy()
    self_loops = np.arange(count).repeat(2).reshape(-1, 2)
    source, target = np.unique(np.concatenate([edges, edges[:, ::-1], self_loops]), axis=0).T
    degree = np.bincount(target, minlength=count)
    weight = (1 / np.sqrt(degree[source] * degree[target])).astype(np.float32)
    matrix = csr_matrix((weight, (target, source)), shape=(count, count))

    def average(rows):
        return torch.from_numpy(matrix @ rows.cpu().numpy()).to(device)

    return average


def fit_predict(views, nodes, labels, classes, average):
    """Average the probabilities of all models, insert the known labels, and propagate along edges."""
    total = torch.zeros(len(views[0]), classes, device=device)
    for features in views:
        for _ in range(MODELS):
            model = nn.Sequential(
                nn.Dropout(DROPOUT / 2),
                nn.Linear(features.shape[1], HIDDEN),
                nn.ReLU(),
                nn.Dropout(DROPOUT),
                nn.Linear(HIDDEN, classes),
            ).to(device)
            optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
            model.train()
            for _ in range(STEPS):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(features[nodes]), labels).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                total += model(features).softmax(dim=1)
    initial = total / total.sum(dim=1, keepdim=True)
    initial[nodes] = nn.functional.one_hot(labels, classes).float()
    smoothed = initial
    for _ in range(SPREADS):
        smoothed = (1 - KEPT_SHARE) * average(smoothed) + KEPT_SHARE * initial
    return smoothed


def main():
    """Validate a model of the training papers, then train on all labels and predict the test papers."""
    torch.manual_seed(SEED)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    words = torch.tensor(np.load("data/features.npz")["features"].astype(np.float32), device=device)
    (nodes, labels), (valid_nodes, valid_labels) = read_labels("train"), read_labels("valid")
    test_nodes = pd.read_csv("data/test_nodes.csv")["node"].to_numpy().copy()
    classes = int(max(labels.max(), valid_labels.max())) + 1
    average = make_neighbour_average(len(words))

    hops = [nn.functional.normalize(words, dim=1)]
    for hop in range(HOPS):
        hops.append(average(hops[-1]))
        print(f"averaged over neighbours {hop + 1} of {HOPS} times", flush=True)
    views = [hops[-1], torch.cat(hops, dim=1)]

    validation_predictions = fit_predict(views, nodes, labels, classes, average)[valid_nodes].argmax(dim=1)
    accuracy = (validation_predictions == valid_labels).float().mean().item()
    print(f"learned from the training part: validation {accuracy:.4f}", flush=True)
    nodes, labels = torch.cat([nodes, valid_nodes]), torch.cat([labels, valid_labels])
    predicted = fit_predict(views, nodes, labels, classes, average).argmax(dim=1)
    pd.DataFrame(
        {"node": test_nodes, "label": predicted[torch.tensor(test_nodes, device=device)].cpu()}
    ).to_csv("submission.csv", index=False)
    print(f"validation accuracy: {accuracy:.4f}")


main()
