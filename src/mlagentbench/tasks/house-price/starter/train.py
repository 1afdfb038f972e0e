"""Predict house prices with a linear model, trained by stochastic gradient descent on one house at a time."""

import os

import numpy as np
import pandas as pd

COLUMNS = ["LotArea", "YearBuilt", "GrLivArea", "FullBath", "BedroomAbvGr", "GarageArea", "Fireplaces"]
LEARNING_RATE = 1e-7
WEIGHT_DECAY = 1.0
EPOCHS = 100
INITIAL_SPREAD = 300.0
SEED = int(os.environ.get("SEED", "0"))


def fit_predict(features, prices, new_features):
    """Fit a model of prices, and predict the prices of new houses. You can replace it by any other model."""
    rng = np.random.default_rng(SEED)
    mean, scale = features.mean(axis=0), features.std(axis=0)
    features, new_features = (features - mean) / scale, (new_features - mean) / scale
    weights, intercept = rng.normal(0, INITIAL_SPREAD, features.shape[1]), np.median(prices)
    for _ in range(EPOCHS):
        for row in rng.permutation(len(prices)):
            error = features[row] @ weights + intercept - prices[row]
            weights -= LEARNING_RATE * (error * features[row] + WEIGHT_DECAY * weights)
            intercept -= LEARNING_RATE * error
    return new_features @ weights + intercept


def main():
    """Cross-validate, then predict the prices of the test houses."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    medians = train[COLUMNS].median()
    features, new_features = (table[COLUMNS].fillna(medians).to_numpy(float) for table in (train, test))
    prices = train["SalePrice"].to_numpy(float)

    folds = np.random.default_rng(SEED).permutation(len(prices)) % 10
    errors = []
    for fold in range(10):
        train_rows, validation_rows = folds != fold, folds == fold
        predicted = fit_predict(features[train_rows], prices[train_rows], features[validation_rows])
        errors.append(np.abs(predicted - prices[validation_rows]).mean())
        print(f"fold {fold + 1} of 10: mean absolute error {errors[-1]:.2f}", flush=True)

    predicted = fit_predict(features, prices, new_features)
    if not np.isfinite([*errors, *predicted]).all():
        raise SystemExit("not all predictions are finite; submission.csv was not written")
    pd.DataFrame({"Id": test["Id"], "SalePrice": predicted}).to_csv("submission.csv", index=False)
    print(f"validation mean absolute error: {np.mean(errors):.2f}")


main()
