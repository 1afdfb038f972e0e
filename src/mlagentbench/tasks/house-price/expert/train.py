"""Predict house prices with an average of a Gaussian process, support vectors, lasso and boosted trees."""

import os

import lightgbm as lgb
import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import Lasso
from sklearn.svm import SVR

SEED = int(os.environ.get("SEED", "0"))
FOLDS = 5
GRADES = ["Po", "Fa", "TA", "Gd", "Ex"]
MIN_COUNT = 5  # of the houses that differ in a column, or have a word
WORD_SCALE = 0.4  # of one-hot columns, when numbers are scaled to 1
WEIGHTS = {"process": 0.4, "support": 0.2, "lasso": 0.1, "trees": 0.3}  # chosen by cross-validation
PRIOR_MEANS = {"linear": 0.02, "relevance": 0.2}  # of the relevances of a column
DEGREES_OF_FREEDOM = 4.0  # of the noise
CONSTANT_VARIANCE = 0.3
OUTLIER_SDS = 6.0
CIRCUMSTANCES = ["Neighborhood", "SaleType", "SaleCondition"]
BOOSTING = {
    "n_estimators": 600,
    "learning_rate": 0.04,
    "max_depth": 4,
    "max_features": 0.1,
    "min_samples_leaf": 6,
    "subsample": 0.7,
}
LIGHT_BOOSTING = {
    "n_estimators": 900,
    "learning_rate": 0.03,
    "num_leaves": 10,
    "min_child_samples": 6,
    "reg_lambda": 1.0,
    "subsample": 0.7,
    "subsample_freq": 1,
    "colsample_bytree": 0.12,
}


def add_features(table):
    """Turn grades into numbers (0 if there is nothing to grade), fill empty cells, and add sums and ages."""
    table = table.drop(columns=["Id", "SalePrice"], errors="ignore").copy()
    for name in table.columns:
        if table[name].dropna().isin(GRADES).all():
            table[name] = table[name].map(GRADES.index, na_action="ignore").astype(float) + 1
    table["MSSubClass"] = "class " + table["MSSubClass"].astype(str)
    garage = table["GarageYrBlt"]
    table["GarageYrBlt"] = garage.where(garage <= table["YrSold"] + 1, table["YearBuilt"])
    root = np.sqrt(table["LotArea"])
    table["LotFrontage"] = table["LotFrontage"].fillna(root * (table["LotFrontage"] / root).median())
    numeric = table.select_dtypes("number").columns
    table[numeric] = table[numeric].fillna(0).astype(float)
    words = [name for name in table if name not in numeric]
    table[words] = table[words].astype(object).where(table[words].notna(), "none")

    table["Month"] = "month " + table["MoSold"].astype(int).astype(str)
    table["Time"] = table["YrSold"] + table["MoSold"] / 12
    for name, year in [
        ("Age", "YearBuilt"),
        ("SinceRemodelled", "YearRemodAdd"),
        ("GarageAge", "GarageYrBlt"),
    ]:
        table[name] = (table["YrSold"] - table[year]).clip(lower=0)
    table["New"] = (table["Age"] <= 1).astype(float)
    table["Area"] = table["GrLivArea"] + table["TotalBsmtSF"]
    table["FinishedArea"] = table["GrLivArea"] + table["BsmtFinSF1"] + table["BsmtFinSF2"]
    table["AreaPerRoom"] = table["GrLivArea"] / table["TotRmsAbvGrd"].clip(lower=1)
    table["Baths"] = (
        table["FullBath"] + table["BsmtFullBath"] + (table["HalfBath"] + table["BsmtHalfBath"]) / 2
    )
    outside = ["OpenPorchSF", "EnclosedPorch", "3SsnPorch", "ScreenPorch", "WoodDeckSF"]
    table["Outside"] = table[outside].sum(axis=1)
    table["QualityArea"] = table["OverallQual"] * np.log1p(table["Area"])
    table["QualityCondition"] = table["OverallQual"] * table["OverallCond"]
    table["Grades"] = table[["ExterQual", "KitchenQual", "BsmtQual", "HeatingQC"]].sum(axis=1)
    parts = ["2ndFlrSF", "LowQualFinSF", "MasVnrArea", "GarageArea", "TotalBsmtSF", "BsmtFinSF1", "PoolArea"]
    for name in [*parts, "WoodDeckSF", "ScreenPorch", "EnclosedPorch"]:
        table[f"Has{name}"] = (table[name] > 0).astype(float)
    return table


def scale(table, new):
    """Return both tables as numbers of similar size, and for each of their columns the one it comes from."""
    numeric = table.select_dtypes("number").columns
    blocks, new_blocks, sources = [], [], []
    for name in table.columns:
        if name in numeric:
            column, new_column = table[[name]].to_numpy(), new[[name]].to_numpy()
            if (table[name] != table[name].mode()[0]).sum() < MIN_COUNT:
                continue
            if table[name].min() >= 0 and abs(table[name].skew()) > 0.8:
                column, new_column = np.log1p(column), np.log1p(np.maximum(new_column, 0))
            mean, sd = column.mean(), column.std()
            column, new_column = (((values - mean) / sd).clip(-4, 4) for values in (column, new_column))
        else:
            counts = table[name].value_counts()
            words = counts.index[(counts >= MIN_COUNT) & (counts <= len(table) - MIN_COUNT)]
            column, new_column = (
                (values[name].to_numpy()[:, None] == words.to_numpy()).astype(float)
                for values in (table, new)
            )
            mean = column.mean(axis=0)
            column, new_column = (column - mean) / WORD_SCALE, (new_column - mean) / WORD_SCALE
        if column.shape[1]:
            sources += [len(blocks)] * column.shape[1]
            blocks.append(column)
            new_blocks.append(new_column)
    return np.hstack(blocks), np.hstack(new_blocks), np.array(sources)


def encode(table, new, target):
    """Return both tables as numbers, for trees: a word becomes the shrunk mean target of its houses."""
    columns, new_columns = [], []
    for name in table.columns:
        if pd.api.types.is_numeric_dtype(table[name]):
            columns.append(table[name])
            new_columns.append(new[name])
        else:
            groups = pd.Series(target, index=table.index).groupby(table[name])
            means = groups.sum() / (groups.count() + 10)
            columns.append(table[name].map(means))
            new_columns.append(new[name].map(means).fillna(0.0))
    return np.column_stack(columns).astype(float), np.column_stack(new_columns).astype(float)


class GaussianProcess:
    """Regression with a linear and a squared exponential kernel; every source column has a relevance in each.

    Relevances maximize the marginal likelihood times an exponential prior. The noise has heavy tails: houses
    with a large leave-one-out residual get a larger variance.
    """

    def __init__(self, sources, iterations):
        """Remember which columns share a relevance."""
        self.sources, self.count, self.iterations = sources, sources.max() + 1, iterations

    def kernels(self, settings, left, right):
        """Return both kernels between the rows of two tables."""
        linear, relevance = np.exp(settings[: 2 * self.count]).reshape(2, -1)[:, self.sources]
        distances = (left**2 @ relevance)[:, None] + right**2 @ relevance - 2 * (left * relevance) @ right.T
        return (left * linear) @ right.T, np.exp(settings[-2] - 0.5 * np.maximum(distances, 0))

    def covariance(self, settings, noise):
        """Return the covariance of the training targets, and the squared exponential part of it."""
        linear, smooth = self.kernels(settings, self.rows, self.rows)
        return linear + smooth + CONSTANT_VARIANCE + np.diag(np.exp(settings[-1]) * noise), smooth

    def objective(self, settings, noise):
        """Return the negative log posterior of the settings, and its gradient."""
        total, smooth = self.covariance(settings, noise)
        factor = cho_factor(total, lower=True)
        inverse = cho_solve(factor, np.eye(len(total)))
        alpha = inverse @ self.target
        change = 0.5 * (inverse - np.outer(alpha, alpha))  # of the likelihood with the covariance
        linear = np.einsum("ij,ij->j", self.rows, change @ self.rows)
        change_smooth = change * smooth
        distance = np.einsum("ij,ij->j", self.rows, change_smooth @ self.rows)
        distance -= self.rows.T**2 @ change_smooth.sum(axis=1)
        gradient = np.concatenate(
            [
                np.bincount(self.sources, linear, self.count),
                np.bincount(self.sources, distance, self.count),
            ]
        )
        relevances = np.exp(settings[: 2 * self.count])
        prior = np.repeat(1 / np.array(list(PRIOR_MEANS.values())), self.count)
        value = 0.5 * self.target @ alpha + np.log(np.diag(factor[0])).sum() + prior @ relevances
        rest = [change_smooth.sum(), np.exp(settings[-1]) * np.diag(change) @ noise]
        return value, np.concatenate([(gradient + prior) * relevances, rest])

    def fit(self, rows, target):
        """Fit relevances and noise in turn; return self."""
        self.rows, self.center, self.spread = rows, target.mean(), target.std()
        self.target = (target - self.center) / self.spread
        settings = np.concatenate([np.repeat(np.log([0.002, 0.005]), self.count), np.log([0.3, 0.08])])
        noise = np.ones(len(rows))
        for _ in range(2):
            found = minimize(
                self.objective,
                settings,
                noise,
                jac=True,
                method="L-BFGS-B",
                bounds=[(-14, 3)] * len(settings),
                options={"maxiter": self.iterations},
            )
            settings = found.x
            for _ in range(5):
                inverse = np.linalg.inv(self.covariance(settings, noise)[0])
                self.alpha, variances = inverse @ self.target, 1 / np.diag(inverse)
                self.surprise = self.alpha * np.sqrt(
                    variances
                )  # leave-one-out residuals, in standard deviations
                noise = (DEGREES_OF_FREEDOM + self.surprise**2) / (DEGREES_OF_FREEDOM + 1)
                noise = np.maximum(noise, 0.3)
        self.settings = settings
        return self

    def predict(self, rows):
        """Return the means of new targets."""
        linear, smooth = self.kernels(self.settings, rows, self.rows)
        return self.center + self.spread * ((linear + smooth + CONSTANT_VARIANCE) @ self.alpha)


def find_outliers(rows, target):
    """Return which houses were sold for a price that all others contradict."""
    model = Lasso(alpha=0.003, max_iter=5000)
    keep = np.ones(len(target), bool)
    for _ in range(2):
        residuals = target - model.fit(rows[keep], target[keep]).predict(rows)
        keep = np.abs(residuals) < OUTLIER_SDS * 1.48 * np.median(np.abs(residuals))
    return ~keep


def fit_models(table, prices, new):
    """Return the predicted log prices of every kind of model."""
    center = np.log(prices).mean()
    target = np.log(prices) - center
    rows, new_rows, sources = scale(table, new)
    codes, new_codes = encode(table, new, target)
    supports = [
        SVR(C=c, epsilon=0.02, gamma=gamma).fit(rows, target).predict(new_rows)
        for c, gamma in [(3.0, 0.0006), (12.0, 0.0003)]
    ]
    trees = [
        GradientBoostingRegressor(**BOOSTING, loss=loss, random_state=SEED)
        .fit(codes, target)
        .predict(new_codes)
        for loss in ("squared_error", "huber")
    ]
    for seed in range(2):
        light = lgb.LGBMRegressor(**LIGHT_BOOSTING, random_state=1000 * SEED + seed, n_jobs=1, verbose=-1)
        trees.append(light.fit(rows, target).predict(new_rows))
    predicted = {
        "process": GaussianProcess(sources, 40).fit(rows, target).predict(new_rows),
        "support": np.mean(supports, axis=0),
        "lasso": Lasso(alpha=0.0012, max_iter=5000).fit(rows, target).predict(new_rows),
        "trees": np.mean(trees, axis=0),
    }
    return pd.DataFrame(predicted) + center


def match_outliers(table, prices, outlier, new):
    """Return the price of outliers for new houses like them, and NaN for all others.

    A house is like an outlier if neighbourhood and kind of sale agree, its living area is not much smaller,
    and most known houses of this description are outliers.
    """
    matched = np.full(len(new), np.nan)
    for row in np.flatnonzero(outlier):
        alike, new_alike = (
            (houses[CIRCUMSTANCES] == table.loc[row, CIRCUMSTANCES]).all(axis=1)
            & (houses["GrLivArea"] >= 0.9 * table.loc[row, "GrLivArea"])
            for houses in (table, new)
        )
        if outlier[alike].mean() > 0.5:
            matched[new_alike] = np.median(prices[alike & outlier])
    return matched


def fit_predict(table, prices, new):
    """Return predicted prices: of outliers for houses like them, the average of the models for others."""
    table, new = table.reset_index(drop=True), new.reset_index(drop=True)
    outlier = find_outliers(scale(table, new)[0], np.log(prices))
    logs = fit_models(table[~outlier], prices[~outlier], new)
    predicted = np.exp(logs @ pd.Series(WEIGHTS)).to_numpy()
    matched = match_outliers(table, prices, outlier, new)
    return np.where(np.isnan(matched), predicted, matched)


def main():
    """Cross-validate, then predict the prices of the test houses."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    prices = train["SalePrice"].to_numpy(float)
    table, new = add_features(train), add_features(test)

    folds = np.random.default_rng(SEED).permutation(len(prices)) % FOLDS
    errors = []
    for fold in range(FOLDS):
        train_rows, held_out = folds != fold, folds == fold
        predicted = fit_predict(table[train_rows], prices[train_rows], table[held_out])
        errors.append(np.abs(predicted - prices[held_out]).mean())
        print(f"fold {fold + 1} of {FOLDS}: mean absolute error {errors[-1]:.2f}", flush=True)

    predicted = fit_predict(table, prices, new)
    pd.DataFrame({"Id": test["Id"], "SalePrice": predicted}).to_csv("submission.csv", index=False)
    print(f"validation mean absolute error: {np.mean(errors):.2f}")


main()
