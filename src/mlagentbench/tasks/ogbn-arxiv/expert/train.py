"""Predict the topics of papers with a kernel machine and randomized trees on neighbour-averaged words."""

import os

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.ensemble import ExtraTreesClassifier

POWERS = (0.25, 0.5)  # of the tf-idf values: rare and frequent words count more equally
KEPT_SHARES = (0.35, 0.5)  # of a paper's own words, in each round of averaging
ROUNDS = 8
RIDGE = 0.7
TREES, COLUMN_SHARE = 500, 0.1
TREE_WEIGHT = 0.5  # of the trees' probabilities, relative to the outputs of the kernel machine
SEED = int(os.environ.get("SEED", "0"))


def read_labels(part):
    """Return the nodes of one part and their labels."""
    table = pd.read_csv(f"data/{part}_labels.csv")
    return table["node"].to_numpy(), table["label"].to_numpy()


def normalize(rows):
    """Scale each row to length 1."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def make_diffusion(count):
    """Return a function that mixes rows with those of their neighbours, as personalized PageRank does."""
    edges = pd.read_csv("data/edges.csv").to_numpy()
    self_loops = np.arange(count).repeat(2).reshape(-1, 2)
    source, target = np.unique(np.concatenate([edges, edges[:, ::-1], self_loops]), axis=0).T
    degree = np.bincount(target, minlength=count)
    weight = (1 / np.sqrt(degree[source] * degree[target])).astype(np.float32)
    average = csr_matrix((weight, (target, source)), shape=(count, count))

    def diffuse(rows, kept_share):
        mixed = rows
        for _ in range(ROUNDS):
            mixed = (1 - kept_share) * (average @ mixed) + kept_share * rows
        return mixed

    return diffuse


def compute_kernel(views, nodes):
    """Return the similarity of every paper to the given ones: the mean of Gaussian kernels of all views."""
    kernel = np.zeros((len(views[0]), len(nodes)), np.float32)
    for view in views:
        kernel += np.exp(2 * (view @ view[nodes].T) - 2) / len(views)
    return kernel


def fit_predict(views, columns, nodes, labels, classes):
    """Return a score for every paper and class: kernel ridge regression, plus extremely randomized trees."""
    targets = np.eye(classes)[labels]
    kernel = compute_kernel(views, nodes)
    coefficients = np.linalg.solve(kernel[nodes] + RIDGE * np.eye(len(nodes)), targets - targets.mean(axis=0))
    scores = kernel @ coefficients + targets.mean(axis=0)
    trees = ExtraTreesClassifier(TREES, max_features=COLUMN_SHARE, random_state=SEED, n_jobs=2)
    trees.fit(columns[nodes], labels)
    return scores + TREE_WEIGHT * trees.predict_proba(columns)


def main():
    """Validate a model of the training papers, then train on all labels and predict the test papers."""
    words = np.load("data/features.npz")["features"].astype(np.float32)
    (nodes, labels), (valid_nodes, valid_labels) = read_labels("train"), read_labels("valid")
    test_nodes = pd.read_csv("data/test_nodes.csv")["node"].to_numpy()
    classes = int(max(labels.max(), valid_labels.max())) + 1
    diffuse = make_diffusion(len(words))
    even, moderate = (normalize(words**power) for power in POWERS)
    mixed = diffuse(even, KEPT_SHARES[1])
    views = [even] + [normalize(view) for view in (mixed, diffuse(even, KEPT_SHARES[0]))]
    views.append(normalize(diffuse(moderate, KEPT_SHARES[0])))
    columns = np.concatenate([words, mixed], axis=1)
    print("averaged words over neighbours", flush=True)

    scores = fit_predict(views, columns, nodes, labels, classes)
    accuracy = (scores[valid_nodes].argmax(axis=1) == valid_labels).mean()
    print(f"learned from the training part: validation {accuracy:.4f}", flush=True)
    nodes, labels = np.concatenate([nodes, valid_nodes]), np.concatenate([labels, valid_labels])
    predicted = fit_predict(views, columns, nodes, labels, classes)[test_nodes].argmax(axis=1)
    pd.DataFrame({"node": test_nodes, "label": predicted}).to_csv("submission.csv", index=False)
    print(f"validation accuracy: {accuracy:.4f}")


main()
