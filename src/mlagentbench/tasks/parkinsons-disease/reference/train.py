"""Forecasts UPDRS scores: a forest on visits and proteins gives their distribution, and SMAPE picks a number of it."""

import os

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeCV

SEED = int(os.environ.get("SEED", "0"))
SCORES = ["updrs_1", "updrs_2", "updrs_3", "updrs_4"]
HORIZONS = [0, 6, 12, 24]
YEARLY = [0, 12, 24, 36, 48, 60, 72, 84, 96, 108]
FOLDS = 5
FOREST = {"n_estimators": 150, "min_samples_leaf": 12, "max_features": 0.5, "n_jobs": 1}
WITHOUT_PROTEINS = 0.3  # weight of supplemental patients
ALPHAS = np.logspace(1, 5, 17)
HISTORY = ["month", "visits", "extra", "share", "had6", "gap", "recent"]


def smape(actual, forecast):
    """SMAPE in percent, 0 to 200; 0 of 0 counts as 0."""
    size = (np.abs(actual) + np.abs(forecast)) / 2
    return 100 * np.divide(np.abs(actual - forecast), size, out=np.zeros_like(size), where=size > 0)


def histories(visits):
    """For each visit what the months of this and of earlier visits say."""
    rows = []
    for patient, months in visits.groupby("patient_id")["visit_month"]:
        months = np.sort(months.to_numpy())
        for place, month in enumerate(months):
            past = months[: place + 1]
            extra = (~np.isin(past, YEARLY)).sum()
            gap = month - past[-2] if place else 0
            recent = (past > month - 24).sum() / (1 + min(month, 24) / 6)
            told = [len(past), extra, extra / (1 + month / 6), float(6 in past), gap, recent]
            rows.append([patient, month, *told])
    return pd.DataFrame(rows, columns=["patient_id", *HISTORY]).set_index(["patient_id", "month"], drop=False)


def amounts(*files):
    """Logarithms of proteins and peptides, by patient and month, standardised; of each patient the mean so far."""
    tables = []
    for kind, name, value in (("proteins", "UniProt", "NPX"), ("peptides", "Peptide", "PeptideAbundance")):
        table = pd.concat([pd.read_csv(f"{file}_{kind}.csv") for file in files])
        tables.append(table.pivot_table(index=["patient_id", "visit_month"], columns=name, values=value))
    table = np.log(pd.concat(tables, axis=1).clip(lower=1e-3))
    table = ((table - table.mean()) / table.std()).clip(-4, 4).dropna(axis=1, how="all").fillna(0)
    so_far = table.groupby(level=0).expanding().mean().droplevel(0)
    return so_far.rename_axis(["patient_id", "month"])


def severity(clinical):
    """One number for each patient's known visits: the mean of the scores' logarithms, standardised."""
    logs = np.log1p(clinical.set_index(["patient_id", "visit_month"])[SCORES[:3]])
    return ((logs - logs.mean()) / logs.std()).mean(axis=1).rename_axis(["patient_id", "month"]).dropna()


def folds(patients):
    """A fold for each patient."""
    order = np.random.default_rng(SEED).permutation(np.sort(np.unique(patients)))
    return dict(zip(order, np.arange(len(order)) % FOLDS))


def from_proteins(table, truth, train, new):
    """Severity that proteins let expect: for patients in `train` from models that did not see them, and for `new`."""
    known = truth.index.intersection(table.index)
    known = known[known.get_level_values(0).isin(train)]
    fold = folds(train)
    group = np.array([fold[patient] for patient in known.get_level_values(0)])
    found = pd.Series(np.nan, index=table.index)
    for number in range(FOLDS):
        model = RidgeCV(ALPHAS).fit(table.loc[known[group != number]], truth[known[group != number]])
        mine = table.index[[fold.get(patient) == number for patient in table.index.get_level_values(0)]]
        found[mine] = model.predict(table.loc[mine])
    others = table.index[table.index.get_level_values(0).isin(new)]
    found[others] = RidgeCV(ALPHAS).fit(table.loc[known], truth[known]).predict(table.loc[others])
    return found.dropna()


def with_severity(history, found):
    """Add what the latest sample so far tells."""
    latest = found.reindex(history.index).groupby(level=0).ffill()
    return history.assign(proteins=latest.to_numpy())


def pairs(history, clinical, score):
    """Each visit with each horizon at which the score was measured."""
    known = clinical.dropna(subset=score).set_index(["patient_id", "visit_month"])[score]
    found = []
    for ahead in HORIZONS:
        later = pd.MultiIndex.from_arrays([history["patient_id"], history["month"] + ahead])
        found.append(history.assign(ahead=ahead, at=history["month"] + ahead, rating=known.reindex(later).to_numpy()))
    return pd.concat(found).dropna(subset="rating")


def forecast(rows, weights, new):
    """Forecasts of least expected SMAPE, by the distribution of ratings in the leaves of a forest."""
    columns = [*HISTORY, "proteins", "ahead", "at"]
    ratings = rows["rating"].to_numpy(int)
    forest = RandomForestRegressor(**FOREST, random_state=SEED)
    forest.fit(rows[columns].to_numpy(float), np.log1p(ratings), weights)
    mine, other = forest.apply(rows[columns].to_numpy(float)), forest.apply(new[columns].to_numpy(float))
    chance = np.zeros((len(new), ratings.max() + 1))
    for tree in range(mine.shape[1]):
        counts = np.zeros((mine[:, tree].max() + 1, chance.shape[1]))
        np.add.at(counts, (mine[:, tree], ratings), weights)
        counts = counts[other[:, tree]]
        chance += counts / counts.sum(axis=1, keepdims=True)
    choices = np.arange(chance.shape[1], dtype=float)
    return choices[(chance @ smape(choices[:, None], choices[None])).argmin(axis=1)]


def train_forecast(known, more, new):
    """Forecast a score from the pairs of patients with proteins and, with less weight, of those without."""
    weights = np.repeat([1.0, WITHOUT_PROTEINS], [len(known), len(more)])
    return forecast(pd.concat([known, more]), weights, new)


def main():
    """Cross-validate over patients, then forecast for the hidden ones."""
    clinical, supplemental = pd.read_csv("train_clinical_data.csv"), pd.read_csv("supplemental_clinical_data.csv")
    visits = pd.read_csv("test.csv")
    table, truth = amounts("train", "test"), severity(clinical)
    history, unknown = histories(clinical), histories(visits)
    others = histories(supplemental).assign(proteins=np.nan)
    more = {score: pairs(others, supplemental, score) for score in SCORES}
    patients, fold = np.unique(clinical["patient_id"]), folds(clinical["patient_id"])

    errors = []
    for number in range(FOLDS):
        seen = [patient for patient in patients if fold[patient] != number]
        held = [patient for patient in patients if fold[patient] == number]
        full = with_severity(history, from_proteins(table, truth, seen, held))
        sampled = full[full.index.isin(table.index) & full["patient_id"].isin(held)]
        known, found, weights = full[full["patient_id"].isin(seen)], [], []
        for score in SCORES:
            new = pairs(sampled, clinical, score)
            predicted = train_forecast(pairs(known, clinical, score), more[score], new)
            found.append(smape(new["rating"].to_numpy(), predicted))
            weights.append(1 / new.groupby(level=0)["month"].transform("nunique"))  # one visit of each will be asked for
        errors.append(np.average(np.concatenate(found), weights=np.concatenate(weights)))
        print(f"fold {number + 1} of {FOLDS}: SMAPE {errors[-1]:.3f}", flush=True)

    tell = from_proteins(table, truth, patients, visits["patient_id"].unique())
    full, ends = with_severity(history, tell), with_severity(unknown, tell).groupby(level=0).tail(1)
    new = pd.concat([ends.assign(ahead=ahead, at=ends["month"] + ahead) for ahead in HORIZONS])
    visit = new["patient_id"].astype(str) + "_" + new["month"].astype(str) + "_"
    results = []
    for score in SCORES:
        ids = visit + score + "_plus_" + new["ahead"].astype(str) + "_months"
        predicted = train_forecast(pairs(full, clinical, score), more[score], new)
        results.append(pd.DataFrame({"prediction_id": ids, "rating": predicted}))
    pd.concat(results).to_csv("submission.csv", index=False)
    print(f"validation SMAPE: {np.mean(errors):.3f}")


main()
