"""Predict the topics of papers with a multilayer perceptron on their words, without citations."""

import os

import numpy as np
import pandas as pd
import torch
from torch import nn

LEARNING_RATE = 1.0
WEIGHT_DECAY = 1e-4
DROPOUT = 0.5
HIDDEN = 1024
BATCH_SIZE = 8
EPOCHS = 10
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def read_labels(part):
    """Return the nodes of one part and their labels as tensors."""
    table = pd.read_csv(f"data/{part}_labels.csv")
    return torch.tensor(table["node"].to_numpy(), device=device), torch.tensor(
        table["label"].to_numpy(), device=device
    )


def predict(model, features):
    """Return the most likely label of each paper."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(rows).argmax(dim=1) for rows in features.split(4096)])


def main():
    """Train, and keep the predictions of the epoch with the best validation accuracy."""
    torch.manual_seed(SEED)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # more threads help little, and are much slower on busy cores
    features = torch.tensor(np.load("data/features.npz")["features"].astype(np.float32), device=device)
    features = (features - features.mean(dim=0)) / features.std(dim=0)
    (nodes, labels), (valid_nodes, valid_labels) = read_labels("train"), read_labels("valid")
    test_nodes = pd.read_csv("data/test_nodes.csv")["node"].to_numpy()
    test_rows = torch.tensor(test_nodes.copy(), device=device)
    classes = int(max(labels.max(), valid_labels.max())) + 1

    model = nn.Sequential(
        nn.Linear(features.shape[1], HIDDEN),
        nn.Tanh(),
        nn.Dropout(DROPOUT),
        nn.Linear(HIDDEN, HIDDEN),
        nn.Tanh(),
        nn.Dropout(DROPOUT),
        nn.Linear(HIDDEN, classes),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    best_accuracy, predicted = -1.0, None
    for epoch in range(1, EPOCHS + 1):
        model.train()
        total = 0.0
        for batch in torch.randperm(len(nodes), device=device).split(BATCH_SIZE):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(features[nodes[batch]]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        all_predictions = predict(model, features)
        accuracy = (all_predictions[valid_nodes] == valid_labels).float().mean().item()
        print(
            f"epoch {epoch} of {EPOCHS}: loss {total / len(nodes):.4f}, validation {accuracy:.4f}", flush=True
        )
        if accuracy > best_accuracy:
            best_accuracy, predicted = accuracy, all_predictions[test_rows].cpu().numpy()

    pd.DataFrame({"node": test_nodes, "label": predicted}).to_csv("submission.csv", index=False)
    print(f"validation accuracy: {best_accuracy:.4f}")


main()
