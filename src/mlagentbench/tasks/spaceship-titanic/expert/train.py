"""Predict who was transported with a Bayesian logistic model, sampled by Gibbs steps.

The log-odds are a sum of effects of the passenger and the group, one effect per surname, and a function of
the cabin number that is constant within regions of unknown borders. Predictions average over all of it.
"""

import os
from typing import NamedTuple

import numpy as np
import pandas as pd

SEED = int(os.environ.get("SEED", "0"))
SPENDING = ["RoomService", "FoodCourt", "ShoppingMall", "Spa", "VRDeck"]
LUXURY = ["RoomService", "Spa", "VRDeck"]
KNOT_QUANTILES = [0.1, 0.3, 0.5, 0.7, 0.9]  # of the logarithms of bills above zero
AGE_BOUNDS = [*range(0, 75, 5), 200]
COEFFICIENT_SD = 1.0  # of the prior
LONGEST_REGION = 150  # cabin numbers
FOLDS, FOLD_SWEEPS, SWEEPS, BURN_IN = 5, 160, 600, 60
GAMMA_TERMS = 12  # of the series for Polya-Gamma numbers


class Design(NamedTuple):
    """Everything that the model uses of the passengers, in the order of the rows."""

    features: np.ndarray
    surname: np.ndarray  # its number; the last one stands for "unknown"
    deck: np.ndarray  # its number, or -1 if the cabin is unknown
    side: np.ndarray
    number: np.ndarray  # of the cabin, in units of the longer side of the deck


def fill_in(table):
    """Return the table with unknown cells filled in from the group and from what sleepers may not do."""
    table = table.copy()
    table["Group"] = table["PassengerId"].str[:4]
    table["Surname"] = table["Name"].str.split().str[-1]
    table[["Deck", "Number", "Side"]] = table["Cabin"].str.split("/", expand=True)
    table["Number"] = table["Number"].astype(float)
    for name in ["HomePlanet", "Deck", "Number", "Side", "Destination", "Surname"]:
        table[name] = table[name].fillna(table.groupby("Group")[name].transform("first"))
    for name, key in [("HomePlanet", "Surname"), ("HomePlanet", "Deck")]:  # most common one
        common = table.groupby(key)[name].agg(lambda values: values.mode().iloc[0])
        table[name] = table[name].fillna(table[key].map(common))
    for name in ["CryoSleep", "VIP"]:
        table[name] = table[name].map({True: 1.0, False: 0.0, "True": 1.0, "False": 0.0}).astype(float)
    spent = table[SPENDING].sum(axis=1)
    asleep = ((spent == 0) & ~(table["Age"] <= 12)).astype(float)
    table["CryoSleep"] = table["CryoSleep"].fillna(asleep)
    table["VIP"] = table["VIP"].fillna(0.0)
    spends_nothing = (table["CryoSleep"] == 1) | (table["Age"] <= 12)
    table.loc[spends_nothing, SPENDING] = table.loc[spends_nothing, SPENDING].fillna(0.0)
    table["Age"] = table["Age"].where(table["Age"].notna() | (spent == 0) | spends_nothing, 30.0)
    return table


def one_hot(values):
    """Return a 0/1 column for each value; rows without a value have only zeros."""
    return pd.get_dummies(values, dtype=float).to_numpy()


def hinges(values):
    """Return a piecewise linear basis; unknown values get zeros, and a column that marks them."""
    known = values.fillna(0.0).to_numpy()
    knots = [0.0, *np.quantile(known[known > 0], KNOT_QUANTILES)]
    return np.column_stack([*(np.maximum(known - knot, 0) for knot in knots), values.isna().to_numpy(float)])


def build_design(table):
    """Build the design of all passengers, train and test together."""
    table = fill_in(table)
    groups = table.groupby("Group")
    size = groups["PassengerId"].transform("size")
    others = (size - 1).clip(lower=1)
    luxury = table[LUXURY].sum(axis=1)
    luxury_of_others = luxury.groupby(table["Group"]).transform("sum") - luxury
    sleepers = groups["CryoSleep"].transform("sum") - table["CryoSleep"]
    child = (table["Age"] <= 12).astype(float)
    children = child.groupby(table["Group"]).transform("sum") - child
    asleep = table["CryoSleep"].to_numpy()[:, None]
    planet = one_hot(table["HomePlanet"])
    bills = np.log1p(table[SPENDING])
    columns = [
        planet,
        one_hot(table["Destination"]),
        one_hot(table["HomePlanet"] + table["Destination"]),
        planet * asleep,
        asleep,
        one_hot(table["Deck"]),
        one_hot(table["Side"]),
        one_hot(pd.cut(table["Age"], AGE_BOUNDS, right=False)),
        child.to_numpy()[:, None],
        table[["VIP"]].to_numpy(),
        *(hinges(bills[name]) for name in SPENDING),
        (bills == 0).to_numpy(float) * (1 - asleep),
        one_hot(size),
        np.column_stack([sleepers / others, children / others]),
        hinges(np.log1p(luxury_of_others)),
    ]
    features = np.hstack([np.ones((len(table), 1)), *columns])
    surname = pd.factorize(table["Surname"])[0]
    known = table["Number"].notna().to_numpy()
    cabins = table.groupby(["Deck", "Side"])["Number"].transform("max") + 1
    longer = cabins.groupby(table["Deck"]).transform("max")  # the two sides of a deck differ in length
    return Design(
        features,
        np.where(surname < 0, surname.max() + 1, surname),
        np.where(known, pd.factorize(table["Deck"])[0], -1),
        (table["Side"] == "S").to_numpy(int),
        ((table["Number"] + 0.5) / cabins * longer).fillna(0).to_numpy(int),
    )


def draw_polya_gamma(rng, tilt):
    """Draw Polya-Gamma(1, tilt) numbers: the first terms of their series, and the mean of the others."""
    squares = (tilt[:, None] / (2 * np.pi)) ** 2 + (np.arange(GAMMA_TERMS) + 0.5) ** 2
    drawn = (rng.exponential(size=squares.shape) / squares).sum(axis=1) / (2 * np.pi**2)
    half = np.maximum(np.abs(tilt) / 2, 1e-6)
    mean = np.tanh(half) / (4 * half)
    return drawn + mean - (1 / squares).sum(axis=1) / (2 * np.pi**2)


class Regions:
    """The function of the cabin number on one deck: constant within regions, one value for each side."""

    def __init__(self, number, side):
        """Remember where the passengers are; regions may begin at any cabin number."""
        self.length = number.max() + 1
        self.cell = number * 2 + side
        self.number, self.side = number, side
        self.width = min(LONGEST_REGION, self.length)

    def sample(self, rng, residual, precision, shared_variance, side_variance, cut_rate):
        """Draw borders and values; return each passenger's value, and the values of the regions."""
        sums = np.stack(
            [
                np.bincount(self.cell, weights, 2 * self.length).reshape(-1, 2)
                for weights in (precision, precision * residual)
            ]
        )
        totals = np.concatenate([np.zeros((2, 1, 2)), np.cumsum(sums, axis=1)], axis=1)
        begin = np.arange(self.length)[:, None]
        end = np.minimum(begin + 1 + np.arange(self.width), self.length)
        weight, moment = totals[:, end] - totals[:, begin]
        log_likelihood = self._log_marginal(weight, moment, shared_variance, side_variance)
        stay, cut = -cut_rate, np.log(-np.expm1(-cut_rate))
        lengths = np.arange(self.width)
        log_likelihood += stay * lengths
        log_likelihood[begin + 1 + lengths > self.length] = -np.inf
        ahead = np.zeros(self.length + 1)  # log probability of all that follows, if a region begins here
        for position in range(self.length - 1, -1, -1):
            last = min(self.width, self.length - position)
            terms = log_likelihood[position, :last] + ahead[position + 1 : position + 1 + last]
            terms[: self.length - position - 1] += cut
            top = terms.max()
            ahead[position] = top + np.log(np.exp(terms - top).sum())
        values, drawn = np.zeros((self.length, 2)), []
        position = 0
        while position < self.length:
            last = min(self.width, self.length - position)
            terms = log_likelihood[position, :last] + ahead[position + 1 : position + 1 + last]
            terms[: self.length - position - 1] += cut
            shares = np.cumsum(np.exp(terms - ahead[position]))
            step = min(int(np.searchsorted(shares, rng.random() * shares[-1])), last - 1)
            value = self._draw_value(
                rng, weight[position, step], moment[position, step], shared_variance, side_variance
            )
            values[position : position + step + 1] = value
            drawn.append(value)
            position += step + 1
        return values[self.number, self.side], np.array(drawn)

    @staticmethod
    def _log_marginal(weight, moment, shared, own):
        """Return the log marginal likelihood of regions with these sums of precisions and moments."""
        variance = shared + own
        a, b = weight[..., 0], weight[..., 1]
        determinant = (1 + variance * a) * (1 + variance * b) - shared**2 * a * b
        p, q = moment[..., 0], moment[..., 1]
        inner = variance**2 - shared**2
        quadratic = p * p * (variance + inner * b) + q * q * (variance + inner * a) + 2 * p * q * shared
        return 0.5 * quadratic / determinant - 0.5 * np.log(determinant)

    @staticmethod
    def _draw_value(rng, weight, moment, shared, own):
        """Draw the values of a region on both sides."""
        prior = shared * np.ones((2, 2)) + own * np.eye(2)
        covariance = np.linalg.inv(np.linalg.inv(prior) + np.diag(weight))
        return covariance @ moment + np.linalg.cholesky(covariance) @ rng.normal(size=2)


def draw_variance(rng, values):
    """Draw the variance of normal values with mean zero."""
    return (0.5 + (values**2).sum() / 2) / rng.gamma(1 + len(values) / 2)


def predict(design, labels, train_rows, new_rows, sweeps, seed):
    """Return the probabilities of new rows, averaged over draws from the posterior given the labels."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([train_rows, new_rows])
    count = len(train_rows)
    features, surname = design.features[rows], design.surname[rows]
    spread = features[:count].std(axis=0)
    features = features[:, (spread > 0) | (np.arange(features.shape[1]) == 0)]
    kappa = labels[train_rows] - 0.5
    members = [np.flatnonzero(design.deck[rows] == deck) for deck in range(design.deck.max() + 1)]
    decks = [(member, Regions(design.number[rows][member], design.side[rows][member])) for member in members]
    prior = np.full(features.shape[1], 1 / COEFFICIENT_SD**2)
    family, region = np.zeros(len(rows)), np.zeros(len(rows))
    fixed = np.zeros(len(rows))
    family_variance, shared_variance, side_variance, cut_rate = 1.0, 1.0, 0.5, 0.03
    unknown = design.surname.max()
    probabilities = np.zeros(len(new_rows))
    for sweep in range(sweeps):
        precision = draw_polya_gamma(rng, (fixed + family + region)[:count])
        target = kappa / precision

        residual = target - (family + region)[:count]
        weighted = features[:count] * precision[:, None]
        factor = np.linalg.cholesky(weighted.T @ features[:count] + np.diag(prior))
        moment = np.linalg.solve(factor, weighted.T @ residual)
        fixed = features @ np.linalg.solve(factor.T, moment + rng.normal(size=len(moment)))

        residual = target - (fixed + region)[:count]
        known = (surname[:count] != unknown).astype(float)
        weights = np.bincount(surname[:count], precision * known, unknown + 1) + 1 / family_variance
        moments = np.bincount(surname[:count], precision * residual * known, unknown + 1)
        effects = moments / weights + rng.normal(size=len(weights)) / np.sqrt(weights)
        effects[unknown] = 0.0
        family = effects[surname]
        family_variance = draw_variance(rng, effects[:unknown])

        residual = target - (fixed + family)[:count]
        values, borders, length = [], 0, 0
        for member, regions in decks:
            is_train = member < count
            known_residual, known_precision = np.zeros(len(member)), np.zeros(len(member))
            known_residual[is_train] = residual[member[is_train]]
            known_precision[is_train] = precision[member[is_train]]
            region[member], drawn = regions.sample(
                rng, known_residual, known_precision, shared_variance, side_variance, cut_rate
            )
            values.append(drawn)
            borders, length = borders + len(drawn) - 1, length + regions.length
        values = np.concatenate(values)
        side_variance = draw_variance(rng, (values[:, 0] - values[:, 1]) / np.sqrt(2))
        mean_variance = draw_variance(rng, values.mean(axis=1))
        shared_variance = max(mean_variance - side_variance / 2, 0.05)
        cut_rate = rng.gamma(1 + borders) / (50 + length)
        if sweep >= BURN_IN:
            probabilities += 1 / (1 + np.exp(-(fixed + family + region)[count:]))
    print(
        f"  sd of surnames {family_variance**0.5:.2f}, regions {shared_variance**0.5:.2f},"
        f" regions by side {side_variance**0.5:.2f}; {1 / cut_rate:.0f} cabin numbers in a region",
        flush=True,
    )
    return probabilities / (sweeps - BURN_IN)


def main():
    """Cross-validate with whole groups held out, then predict the labels of the test passengers."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    labels = train.pop("Transported").to_numpy(float)
    design = build_design(pd.concat([train, test], ignore_index=True))

    groups = train["PassengerId"].str[:4]
    shuffled = np.random.default_rng(SEED).permutation(groups.unique())
    folds = groups.map(dict(zip(shuffled, np.arange(len(shuffled)) % FOLDS, strict=True))).to_numpy()
    correct = np.zeros(len(labels), bool)
    for fold in range(FOLDS):
        train_rows, held_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        probabilities = predict(design, labels, train_rows, held_out, FOLD_SWEEPS, SEED)
        correct[held_out] = (probabilities > 0.5) == (labels[held_out] == 1)
        print(f"fold {fold + 1} of {FOLDS}: accuracy {correct[held_out].mean():.4f}", flush=True)

    new_rows = np.arange(len(train), len(train) + len(test))
    probabilities = predict(design, labels, np.arange(len(train)), new_rows, SWEEPS, SEED)
    table = pd.DataFrame(
        {"PassengerId": test["PassengerId"], "Transported": (probabilities > 0.5).astype(int)}
    )
    table.to_csv("submission.csv", index=False)
    print(f"validation accuracy: {correct.mean():.4f}")


main()
