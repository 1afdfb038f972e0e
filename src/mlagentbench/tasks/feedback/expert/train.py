"""Predict text scores by kernel ridge regression: the mean of the six scores, and each score's deviation."""

import os

import numpy as np
import pandas as pd
from features import encode
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

SCORES = ["cohesion", "syntax", "vocabulary", "phraseology", "grammar", "conventions"]
SEED = int(os.environ.get("SEED", "0"))
FOLDS = 5
SHARED_COLUMNS, OWN_COLUMNS = 3000, 2000  # of each block, those most correlated with the target
SHARED_POWER, OWN_POWER = 1.0, 2.0  # of the correlation by which a column is scaled
MEASURES_WEIGHT = 10.0  # of the kernel of the measures; each block has 1
MEASURES_WIDTH = 0.1
MEAN_PENALTY, SHARED_PENALTY, OWN_PENALTY = 0.6, 2.0, 10.0


class Columns:
    """The columns of a block, standardized on the training rows."""

    def __init__(self, table, train_rows):
        self.table = table
        self.train = table[train_rows]
        self.mean = self.train.mean(axis=0)
        variance = self.train.multiply(self.train).mean(axis=0) - self.mean**2
        self.spread = np.sqrt(np.maximum(variance, 1e-6))

    def kernel(self, train_rows, target, count, power):
        """Return the linear kernel of the columns that correlate most, scaled by their correlation."""
        correlation = np.abs(self.train.T @ target) / len(target) / self.spread / target.std()
        best = np.argsort(-correlation)[:count]
        chosen = (self.table[:, best].toarray() - self.mean[best]) / self.spread[best]
        chosen = (chosen.clip(-5, 5) * correlation[best] ** power).astype(np.float32)
        return normalize_kernel(chosen @ chosen[train_rows].T, train_rows)


def normalize_kernel(kernel, train_rows):
    """Scale a kernel so that its mean diagonal entry is 1."""
    return kernel / np.trace(kernel[train_rows]) * len(train_rows)


def measures_kernel(measures, train_rows):
    """Return a Gaussian kernel of the measures."""
    chosen = measures[train_rows]
    squares = (measures**2).sum(axis=1)
    distances = squares[:, None] + squares[train_rows] - 2 * measures @ chosen.T
    return np.exp(-MEASURES_WIDTH * distances / measures.shape[1])


def ridge(kernel, train_rows, targets, penalty):
    """Predict centered targets for all rows from those of the training rows."""
    regularized = kernel[train_rows] + penalty * np.eye(len(train_rows), dtype=kernel.dtype)
    return kernel @ cho_solve(cho_factor(regularized), targets)


def fit_predict(blocks, measures, train_rows, scores, new_rows):
    """Fit a model of the scores of the training rows, and predict those of new rows.

    The mean of the six scores is much less noisy than what distinguishes them, so it needs a smaller penalty.
    """
    center = scores.mean(axis=0)
    mean = scores.mean(axis=1) - scores.mean()
    deviations = scores - center - mean[:, None]
    columns = [Columns(table, train_rows) for table in blocks.values()]
    kernels = [part.kernel(train_rows, mean, SHARED_COLUMNS, SHARED_POWER) for part in columns]
    total = sum(kernels) + MEASURES_WEIGHT * measures_kernel(measures, train_rows)
    shared = normalize_kernel(total, train_rows)
    predicted_mean = ridge(shared, train_rows, mean, MEAN_PENALTY)[new_rows]
    predicted = ridge(shared, train_rows, deviations, SHARED_PENALTY)[new_rows]
    linear = Columns(sparse.csr_array(measures), train_rows)
    for column, target in enumerate(deviations.T):
        own = sum(part.kernel(train_rows, target, OWN_COLUMNS, OWN_POWER) for part in [*columns, linear])
        deviation = ridge(normalize_kernel(own, train_rows), train_rows, target, OWN_PENALTY)[new_rows]
        predicted[:, column] = (predicted[:, column] + deviation) / 2
    return (predicted + predicted_mean[:, None] + center).clip(1, 5)


def standardize(measures):
    """Standardize the measures and the square roots of those that are shares or counts."""
    roots = np.sqrt(measures[:, measures.min(axis=0) >= 0])
    table = np.hstack([measures, roots])
    return ((table - table.mean(axis=0)) / (table.std(axis=0) + 1e-9)).clip(-4, 4).astype(np.float32)


def mcrmse(predicted, scores):
    """Return the root mean squared error of each score, averaged over the six scores."""
    return np.sqrt(((predicted - scores) ** 2).mean(axis=0)).mean()


def main():
    """Cross-validate, then train on all texts and predict the scores of the test texts."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    blocks, measures = encode([*train["full_text"], *test["full_text"]])
    blocks = {name: block.sqrt() for name, block in blocks.items()}
    measures = standardize(measures)
    print({name: block.shape[1] for name, block in blocks.items()}, measures.shape[1], flush=True)
    scores = train[SCORES].to_numpy(float)
    rows, new_rows = np.arange(len(train)), np.arange(len(train), len(train) + len(test))

    folds = np.random.default_rng(SEED).permutation(len(train)) % FOLDS
    held_out = np.zeros_like(scores)
    for fold in range(FOLDS):
        fitted = rows[folds != fold]
        held_out[folds == fold] = fit_predict(blocks, measures, fitted, scores[fitted], rows[folds == fold])
        print(
            f"fold {fold + 1} of {FOLDS}: {mcrmse(held_out[folds == fold], scores[folds == fold]):.4f}",
            flush=True,
        )

    submission = pd.DataFrame(fit_predict(blocks, measures, rows, scores, new_rows), columns=SCORES)
    submission.insert(0, "text_id", test["text_id"])
    submission.to_csv("submission.csv", index=False)
    print(f"validation MCRMSE: {mcrmse(held_out, scores):.4f}")


main()
