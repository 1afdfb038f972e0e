"""Predicts what houses sell for: boosted trees and ridge regression on all columns, averaged in log prices."""

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
    """Grades become numbers, absent ones -1, other absent numbers 0, and a few sums and ages are added."""
    table = table.drop(columns=["Id", "SalePrice"], errors="ignore").copy()
    for name in table.columns:
        if table[name].dropna().isin(GRADES).all():
            table[name] = table[name].map(GRADES.index, na_action="ignore").fillna(-1).astype(float)
    table["MSSubClass"] = table["MSSubClass"].astype(str)
    table["GarageYrBlt"] = table["GarageYrBlt"].fillna(table["YearBuilt"])
    table["LotFrontage"] = table["LotFrontage"].fillna(table["LotFrontage"].median())
    numbers = table.select_dtypes("number").columns
    table[numbers] = table[numbers].fillna(0)
    table["Area"] = table["GrLivArea"] + table["TotalBsmtSF"]
    table["Baths"] = (
        table["FullBath"] + table["BsmtFullBath"] + (table["HalfBath"] + table["BsmtHalfBath"]) / 2
    )
    table["Age"] = table["YrSold"] - table["YearBuilt"]
    table["SinceRemodelled"] = table["YrSold"] - table["YearRemodAdd"]
    table["QualityArea"] = table["OverallQual"] * table["Area"]
    return table


def encode(train, test):
    """One table of numbers for both: wide columns on a log scale, words as indicators."""
    both = pd.concat([add_features(train), add_features(test)])
    numbers = both.select_dtypes("number")
    wide = [name for name in numbers if numbers[name].min() >= 0 and numbers[name].skew() > 1]
    both = both.assign(**{name: np.log1p(both[name]) for name in wide})
    both = pd.get_dummies(both).astype(float)
    common = both.columns[(both != 0).sum() >= 5]
    return both[common].to_numpy()[: len(train)], both[common].to_numpy()[len(train) :]


def fit_predict(features, prices, new_features):
    """The average of both models' log prices, back in dollars."""
    target = np.log(prices)
    scaler = StandardScaler().fit(features)
    linear = Ridge(alpha=200).fit(scaler.transform(features).clip(-4, 4), target)
    predicted = [linear.predict(scaler.transform(new_features).clip(-4, 4))]
    for seed in range(3):
        trees = lgb.LGBMRegressor(**TREES, random_state=1000 * SEED + seed, n_jobs=1, verbose=-1)
        predicted.append(trees.fit(features, target).predict(new_features))
    return np.exp(0.5 * predicted[0] + 0.5 * np.mean(predicted[1:], axis=0))


def main():
    """Cross-validate, then predict the test houses."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    prices = train["SalePrice"].to_numpy(float)
    features, new_features = encode(train, test)

    fold = np.random.default_rng(SEED).permutation(len(prices)) % 5
    errors = []
    for number in range(5):
        seen, held = fold != number, fold == number
        predicted = fit_predict(features[seen], prices[seen], features[held])
        errors.append(np.abs(predicted - prices[held]).mean())
        print(f"fold {number + 1} of 5: mean absolute error {errors[-1]:.2f}", flush=True)

    predicted = fit_predict(features, prices, new_features)
    pd.DataFrame({"Id": test["Id"], "SalePrice": predicted}).to_csv("submission.csv", index=False)
    print(f"validation mean absolute error: {np.mean(errors):.2f}")


main()
