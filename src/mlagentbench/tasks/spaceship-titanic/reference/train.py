"""Predict who was transported with boosted trees on features of passengers, cabins, groups and surnames."""

import os

import lightgbm as lgb
import numpy as np
import pandas as pd

SEED = int(os.environ.get("SEED", "0"))
SPENDING = ["RoomService", "FoodCourt", "ShoppingMall", "Spa", "VRDeck"]
LUXURY = ["RoomService", "Spa", "VRDeck"]
TEXT_COLUMNS = ["HomePlanet", "Destination", "Deck"]
ENCODED = ["Surname", "Region", "Block"]
SMOOTHING = 8.0
BAGS = 2
TREES = {
    "n_estimators": 400,
    "learning_rate": 0.03,
    "num_leaves": 12,
    "min_child_samples": 20,
    "reg_lambda": 5.0,
    "subsample": 0.7,
    "subsample_freq": 1,
    "colsample_bytree": 0.4,
}


def add_features(table):
    """Add features of the row, its cabin, its group and its surname; none of them uses the target."""
    table = table.copy()
    table["Group"] = table["PassengerId"].str[:4]
    table["Surname"] = table["Name"].str.split().str[-1]
    table[["Deck", "Number", "Side"]] = table["Cabin"].str.split("/", expand=True)
    table["Number"] = table["Number"].astype(float)
    for name in [
        "HomePlanet",
        "Deck",
        "Number",
        "Side",
        "Destination",
        "Surname",
    ]:  # group members share most of these
        table[name] = table[name].fillna(table.groupby("Group")[name].transform("first"))
    for name in ["CryoSleep", "VIP"]:
        table[name] = table[name].map({True: 1.0, False: 0.0, "True": 1.0, "False": 0.0}).astype(float)
    spent = table[SPENDING].sum(axis=1)
    table["CryoSleep"] = table["CryoSleep"].where(table["CryoSleep"].notna() | (spent == 0), 0.0)
    spends_nothing = (table["CryoSleep"] == 1) | (table["Age"] <= 12)
    table[SPENDING] = table[SPENDING].where(
        ~(table[SPENDING].isna() & spends_nothing.to_numpy()[:, None]), 0.0
    )
    table["Unknown"] = table[SPENDING].isna().sum(axis=1)

    table["Spent"], table["Luxury"] = np.log1p(spent), np.log1p(table[LUXURY].sum(axis=1))
    table["Food"] = np.log1p(spent - table[LUXURY].sum(axis=1))
    table["Balance"] = table["Food"] - table["Luxury"]
    table[SPENDING] = np.log1p(table[SPENDING])
    table["LogBalance"] = (
        table["FoodCourt"].fillna(0) + table["ShoppingMall"].fillna(0) - table[LUXURY].sum(axis=1)
    )
    table["Child"] = (table["Age"] <= 12).astype(float)
    table["Starboard"] = (table["Side"] == "S").astype(float)

    groups = table.groupby("Group")
    table["Size"] = groups["PassengerId"].transform("size")
    others = (table["Size"] - 1).clip(lower=1)
    asleep, luxury = table["CryoSleep"].fillna(0.35), np.expm1(table["Luxury"])
    for name, values in {"Asleep": asleep, "Child": table["Child"]}.items():
        table[f"Others{name}"] = (values.groupby(table["Group"]).transform("sum") - values) / others
    table["OthersLuxury"] = np.log1p((luxury.groupby(table["Group"]).transform("sum") - luxury).clip(lower=0))
    table["CabinMates"] = table.groupby("Cabin")["PassengerId"].transform("size").fillna(1)
    table["SurnameCount"] = table.groupby("Surname")["PassengerId"].transform("size")
    corridor = table["Deck"].fillna("?") + table["Side"].fillna("?")
    table["Along"] = table["Number"] / table.groupby(corridor)["Number"].transform("max").clip(lower=1)
    block = (table["Number"] // 30).astype(str)
    table["Region"], table["Block"] = corridor + block, table["Deck"].fillna("?") + block
    for deck in "ABCDEFG":
        table[f"Along{deck}"] = table["Along"].where(table["Deck"] == deck)
    return table


def target_means(keys, residuals, new_keys):
    """Return the mean residual of each key, shrunk towards zero for rare keys."""
    sums = residuals.groupby(keys).agg(["sum", "count"])
    return new_keys.map(sums["sum"] / (sums["count"] + SMOOTHING)).fillna(0.0).to_numpy(float)


def boost(features, labels, new_features, seed):
    """Fit one boosted model, and return its probabilities for new passengers."""
    model = lgb.LGBMClassifier(**TREES, random_state=seed, n_jobs=1, verbose=-1)
    return model.fit(features, labels).predict_proba(new_features)[:, 1]


def fit_predict(train, labels, new_passengers):
    """Fit trees, then fit them again with the mean residuals by surname and region as features."""
    columns = [
        name for name in train if name not in ("PassengerId", "Group", "Cabin", "Name", "Side", *ENCODED)
    ]
    both = pd.get_dummies(pd.concat([train[columns], new_passengers[columns]]), columns=TEXT_COLUMNS).astype(
        float
    )
    features, new_features = both.iloc[: len(train)], both.iloc[len(train) :]
    predicted = []
    for bag in range(BAGS):
        seed = 1000 * SEED + bag
        shuffled = np.random.default_rng(seed).permutation(train["Group"].unique())
        folds = train["Group"].map(dict(zip(shuffled, np.arange(len(shuffled)) % 5))).to_numpy()
        residuals = labels.astype(float).copy()
        for fold in range(5):
            train_rows, validation_rows = folds != fold, folds == fold
            residuals[validation_rows] -= boost(
                features[train_rows], labels[train_rows], features[validation_rows], seed
            )
        extra, new_extra = features.copy(), new_features.copy()
        for name in ENCODED:
            extra[f"{name}Mean"] = 0.0
            for fold in range(5):
                train_rows, validation_rows = folds != fold, folds == fold
                means = target_means(
                    train[name][train_rows], residuals[train_rows], train[name][validation_rows]
                )
                extra.loc[validation_rows, f"{name}Mean"] = means
            new_extra[f"{name}Mean"] = target_means(train[name], residuals, new_passengers[name])
        predicted.append(boost(extra, labels, new_extra, seed))
    return np.mean(predicted, axis=0)


def main():
    """Cross-validate with whole groups held out, then predict the labels of the test passengers."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    labels = train.pop("Transported")
    both = add_features(pd.concat([train, test], ignore_index=True))
    train, new_passengers = both.iloc[: len(labels)], both.iloc[len(labels) :]

    shuffled = np.random.default_rng(SEED).permutation(train["Group"].unique())
    folds = train["Group"].map(dict(zip(shuffled, np.arange(len(shuffled)) % 5))).to_numpy()
    correct = np.zeros(len(labels), bool)
    for fold in range(5):
        train_rows, validation_rows = folds != fold, folds == fold
        probabilities = fit_predict(train[train_rows], labels[train_rows], train[validation_rows])
        correct[validation_rows] = (probabilities > 0.5) == (labels[validation_rows] == 1)
        print(f"fold {fold + 1} of 5: accuracy {correct[validation_rows].mean():.4f}", flush=True)

    probabilities = fit_predict(train, labels, new_passengers)
    table = pd.DataFrame(
        {"PassengerId": test["PassengerId"], "Transported": (probabilities > 0.5).astype(int)}
    )
    table.to_csv("submission.csv", index=False)
    print(f"validation accuracy: {correct.mean():.4f}")


main()
