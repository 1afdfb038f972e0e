"""Predict house prices with boosted trees and ridge regression on all columns, averaged in log prices."""

import os

import lightgbm as lgb
import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

SEED = int(os.environ.get("SEED", "0"))
TREES = {
    "n_estimators": 700,
    "learning_rate": 0.02,
    "num_leaves": 12,
    "min_child_samples": 8,
    "reg_lambda": 1.0,
    "subsample": 0.7,
    "subsample_freq": 1,
    "colsample_bytree": 0.3,
}
GRADES = ["Po", "Fa", "TA", "Gd", "Ex"]


def add_features(table):
    """Turn grades into numbers (-1 if missing), fill missing numbers with 0, and add a few sums and ages."""
    table = table.drop(columns=["Id", "SalePrice"], errors="ignore").copy()
    for name in table.columns:
        if table[name].dropna().isin(GRADES).all():
            table[name] = table[name].map(GRADES.index, na_action="ignore").fillna(-1).astype(float)
    table["MSSubClass"] = table["MSSubClass"].astype(str)
    table["GarageYrBlt"] = table["GarageYrBlt"].fillna(table["YearBuilt"])
    table["LotFrontage"] = table["LotFrontage"].fillna(table["LotFrontage"].median())
    numeric = table.select_dtypes("number").columns
    table[numeric] = table[numeric].fillna(0)
    table["Area"] = table["GrLivArea"] + table["TotalBsmtSF"]
    table["Baths"] = (
        table["FullBath"] + table["BsmtFullBath"] + (table["HalfBath"] + table["BsmtHalfBath"]) / 2
    )
    table["Age"] = table["YrSold"] - table["YearBuilt"]
    table["SinceRemodelled"] = table["YrSold"] - table["YearRemodAdd"]
    table["QualityArea"] = table["OverallQual"] * table["Area"]
    return table


def encode(train, test):
    """Encode both tables alike as numbers: skewed columns on a log scale, text columns one-hot."""
    both = pd.concat([add_features(train), add_features(test)])
    numeric = both.select_dtypes("number")
    skewed = [name for name in numeric if numeric[name].min() >= 0 and numeric[name].skew() > 1]
    both = both.assign(**{name: np.log1p(both[name]) for name in skewed})
    both = pd.get_dummies(both).astype(float)
    common = both.columns[(both != 0).sum() >= 5]
    return both[common].to_numpy()[: len(train)], both[common].to_numpy()[len(train) :]


def fit_predict(features, prices, new_features):
    """Fit both models, and return the average of their log prices, in dollars."""
    target = np.log(prices)
    scaler = StandardScaler().fit(features)
    linear = Ridge(alpha=200).fit(scaler.transform(features).clip(-4, 4), target)
    predicted = [linear.predict(scaler.transform(new_features).clip(-4, 4))]
    for seed in range(3):
        trees = lgb.LGBMRegressor(**TREES, random_state=1000 * SEED + seed, n_jobs=1, verbose=-1)
        predicted.append(trees.fit(features, target).predict(new_features))
    return np.exp(0.5 * predicted[0] + 0.5 * np.mean(predicted[1:], axis=0))


def main():
    """Cross-validate, then predict the prices of the test houses."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    prices = train["SalePrice"].to_numpy(float)
    features, new_features = encode(train, test)

    folds = np.random.default_rng(SEED).permutation(len(prices)) % 5
    errors = []
    for fold in range(5):
        train_rows, validation_rows = folds != fold, folds == fold
        predicted = fit_predict(features[train_rows], prices[train_rows], features[validation_rows])
        errors.append(np.abs(predicted - prices[validation_rows]).mean())
        print(f"fold {fold + 1} of 5: mean absolute error {errors[-1]:.2f}", flush=True)

    predicted = fit_predict(features, prices, new_features)
    pd.DataFrame({"Id": test["Id"], "SalePrice": predicted}).to_csv("submission.csv", index=False)
    print(f"validation mean absolute error: {np.mean(errors):.2f}")


main()
