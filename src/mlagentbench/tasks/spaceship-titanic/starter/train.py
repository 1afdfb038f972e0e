"""Predict who was transported with logistic regression, trained by stochastic gradient descent."""

import os

import numpy as np
import pandas as pd

COLUMNS = ["Age", "RoomService", "FoodCourt", "ShoppingMall", "Spa", "VRDeck"]
LEARNING_RATE = 5e-6
WEIGHT_DECAY = 1.0
EPOCHS = 45
INITIAL_SPREAD = 0.02
INITIAL_INTERCEPT = 0.3
SEED = int(os.environ.get("SEED", "0"))


def fit_predict(features, labels, new_features):
    """Fit a model of the labels, and predict those of new rows. You can replace it by any other model."""
    rng = np.random.default_rng(SEED)
    mean, scale = features.mean(axis=0), features.std(axis=0)
    features, new_features = (features - mean) / scale, (new_features - mean) / scale
    weights, intercept = rng.normal(0, INITIAL_SPREAD, features.shape[1]), INITIAL_INTERCEPT
    for _ in range(EPOCHS):
        for row in rng.permutation(len(labels)):
            probability = 0.5 + 0.5 * np.tanh(0.5 * (features[row] @ weights + intercept))
            error = probability - labels[row]
            weights -= LEARNING_RATE * (error * features[row] + WEIGHT_DECAY * weights)
            intercept -= LEARNING_RATE * error
    if not np.isfinite([*weights, intercept]).all():
        raise SystemExit("the weights are not finite; submission.csv was not written")
    return (new_features @ weights + intercept > 0).astype(int)


def main():
    """Cross-validate with whole groups held out, as in the test, then predict the labels of the test passengers."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    medians = train[COLUMNS].median()
    features, new_features = (table[COLUMNS].fillna(medians).to_numpy(float) for table in (train, test))
    labels = train["Transported"].to_numpy(int)

    _, group = np.unique(train["PassengerId"].str[:4], return_inverse=True)
    folds = (np.random.default_rng(SEED).permutation(group.max() + 1) % 5)[group]
    accuracies = []
    for fold in range(5):
        train_rows, validation_rows = folds != fold, folds == fold
        predicted = fit_predict(features[train_rows], labels[train_rows], features[validation_rows])
        accuracies.append((predicted == labels[validation_rows]).mean())
        print(f"fold {fold + 1} of 5: accuracy {accuracies[-1]:.4f}", flush=True)

    predicted = fit_predict(features, labels, new_features)
    pd.DataFrame({"PassengerId": test["PassengerId"], "Transported": predicted}).to_csv(
        "submission.csv", index=False
    )
    print(f"validation accuracy: {np.mean(accuracies):.4f}")


main()
