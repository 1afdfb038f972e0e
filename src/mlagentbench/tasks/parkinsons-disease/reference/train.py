"""Forecast UPDRS scores with a random forest that predicts distributions, and the best value for SMAPE."""

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
SUPPLEMENTAL_WEIGHT = 0.3  # of patients without proteins
ALPHAS = np.logspace(1, 5, 17)
VISIT_FEATURES = ["month", "visits", "extra", "share", "had6", "gap", "recent"]


def smape(actual, forecast):
    """Return the terms of SMAPE in percent, 0 to 200; a term with both values 0 counts as 0."""
    scale = (np.abs(actual) + np.abs(forecast)) / 2
    return 100 * np.divide(np.abs(actual - forecast), scale, out=np.zeros_like(scale), where=scale > 0)


def visit_features(visits):
    """Return features of each visit from the months of this and earlier visits."""
    rows = []
    for patient, months in visits.groupby("patient_id")["visit_month"]:
        months = np.sort(months.to_numpy())
        for position, month in enumerate(months):
            past = months[: position + 1]
            extra = (~np.isin(past, YEARLY)).sum()
            gap = month - past[-2] if position else 0
            recent = (past > month - 24).sum() / (1 + min(month, 24) / 6)
            features = [len(past), extra, extra / (1 + month / 6), float(6 in past), gap, recent]
            rows.append([patient, month, *features])
    return pd.DataFrame(rows, columns=["patient_id", *VISIT_FEATURES]).set_index(
        ["patient_id", "month"], drop=False
    )


def protein_features(*files):
    """Return standardized log amounts by patient and month, averaged over each patient's samples so far."""
    tables = []
    for kind, name, value in (("proteins", "UniProt", "NPX"), ("peptides", "Peptide", "PeptideAbundance")):
        table = pd.concat([pd.read_csv(f"{file}_{kind}.csv") for file in files])
        tables.append(table.pivot_table(index=["patient_id", "visit_month"], columns=name, values=value))
    table = np.log(pd.concat(tables, axis=1).clip(lower=1e-3))
    table = ((table - table.mean()) / table.std()).clip(-4, 4).dropna(axis=1, how="all").fillna(0)
    running_mean = table.groupby(level=0).expanding().mean().droplevel(0)
    return running_mean.rename_axis(["patient_id", "month"])


def compute_severity(clinical):
    """Return one number per visit: the mean of the standardized logarithms of its scores."""
    logs = np.log1p(clinical.set_index(["patient_id", "visit_month"])[SCORES[:3]])
    return ((logs - logs.mean()) / logs.std()).mean(axis=1).rename_axis(["patient_id", "month"]).dropna()


def assign_folds(patients):
    """Assign each patient to a fold."""
    order = np.random.default_rng(SEED).permutation(np.sort(np.unique(patients)))
    return dict(zip(order, np.arange(len(order)) % FOLDS))


def predict_severity(table, truth, train, new):
    """Predict severity from proteins: out of fold for patients in `train`, and for patients in `new`."""
    known = truth.index.intersection(table.index)
    known = known[known.get_level_values(0).isin(train)]
    fold = assign_folds(train)
    fold_of_sample = np.array([fold[patient] for patient in known.get_level_values(0)])
    predictions = pd.Series(np.nan, index=table.index)
    for fold_number in range(FOLDS):
        model = RidgeCV(ALPHAS).fit(
            table.loc[known[fold_of_sample != fold_number]], truth[known[fold_of_sample != fold_number]]
        )
        held_out = table.index[
            [fold.get(patient) == fold_number for patient in table.index.get_level_values(0)]
        ]
        predictions[held_out] = model.predict(table.loc[held_out])
    new_samples = table.index[table.index.get_level_values(0).isin(new)]
    predictions[new_samples] = (
        RidgeCV(ALPHAS).fit(table.loc[known], truth[known]).predict(table.loc[new_samples])
    )
    return predictions.dropna()


def add_severity(history, predictions):
    """Add the severity predicted from the latest sample so far."""
    latest = predictions.reindex(history.index).groupby(level=0).ffill()
    return history.assign(proteins=latest.to_numpy())


def pairs(history, clinical, score):
    """Pair each visit with each horizon at which the score was measured."""
    measured = clinical.dropna(subset=score).set_index(["patient_id", "visit_month"])[score]
    tables = []
    for ahead in HORIZONS:
        target_visits = pd.MultiIndex.from_arrays([history["patient_id"], history["month"] + ahead])
        tables.append(
            history.assign(
                ahead=ahead, at=history["month"] + ahead, rating=measured.reindex(target_visits).to_numpy()
            )
        )
    return pd.concat(tables).dropna(subset="rating")


def forecast_scores(rows, weights, new):
    """Return the forecasts with the lowest expected SMAPE, given the ratings in the leaves of a forest."""
    columns = [*VISIT_FEATURES, "proteins", "ahead", "at"]
    ratings = rows["rating"].to_numpy(int)
    forest = RandomForestRegressor(**FOREST, random_state=SEED)
    forest.fit(rows[columns].to_numpy(float), np.log1p(ratings), weights)
    leaves, new_leaves = (
        forest.apply(rows[columns].to_numpy(float)),
        forest.apply(new[columns].to_numpy(float)),
    )
    probabilities = np.zeros((len(new), ratings.max() + 1))
    for tree in range(leaves.shape[1]):
        counts = np.zeros((leaves[:, tree].max() + 1, probabilities.shape[1]))
        np.add.at(counts, (leaves[:, tree], ratings), weights)
        counts = counts[new_leaves[:, tree]]
        probabilities += counts / counts.sum(axis=1, keepdims=True)
    choices = np.arange(probabilities.shape[1], dtype=float)
    return choices[(probabilities @ smape(choices[:, None], choices[None])).argmin(axis=1)]


def train_forecast(known, supplemental, new):
    """Forecast a score from pairs of patients with proteins and, with less weight, of those without."""
    weights = np.repeat([1.0, SUPPLEMENTAL_WEIGHT], [len(known), len(supplemental)])
    return forecast_scores(pd.concat([known, supplemental]), weights, new)


def main():
    """Cross-validate over patients, then forecast the scores of the test patients."""
    clinical, supplemental = (
        pd.read_csv("train_clinical_data.csv"),
        pd.read_csv("supplemental_clinical_data.csv"),
    )
    visits = pd.read_csv("test.csv")
    proteins, known_severity = protein_features("train", "test"), compute_severity(clinical)
    train_visits, test_visits = visit_features(clinical), visit_features(visits)
    supplemental_visits = visit_features(supplemental).assign(proteins=np.nan)
    supplemental_pairs = {score: pairs(supplemental_visits, supplemental, score) for score in SCORES}
    patients, fold = np.unique(clinical["patient_id"]), assign_folds(clinical["patient_id"])

    errors = []
    for fold_number in range(FOLDS):
        train_patients = [patient for patient in patients if fold[patient] != fold_number]
        validation_patients = [patient for patient in patients if fold[patient] == fold_number]
        features = add_severity(
            train_visits, predict_severity(proteins, known_severity, train_patients, validation_patients)
        )
        validation_features = features[
            features.index.isin(proteins.index) & features["patient_id"].isin(validation_patients)
        ]
        train_features, fold_errors, weights = features[features["patient_id"].isin(train_patients)], [], []
        for score in SCORES:
            targets = pairs(validation_features, clinical, score)
            predicted = train_forecast(
                pairs(train_features, clinical, score), supplemental_pairs[score], targets
            )
            fold_errors.append(smape(targets["rating"].to_numpy(), predicted))
            weights.append(
                1 / targets.groupby(level=0)["month"].transform("nunique")
            )  # the test asks from one visit per patient
        errors.append(np.average(np.concatenate(fold_errors), weights=np.concatenate(weights)))
        print(f"fold {fold_number + 1} of {FOLDS}: SMAPE {errors[-1]:.3f}", flush=True)

    predicted_severity = predict_severity(proteins, known_severity, patients, visits["patient_id"].unique())
    features, latest_visits = (
        add_severity(train_visits, predicted_severity),
        add_severity(test_visits, predicted_severity).groupby(level=0).tail(1),
    )
    targets = pd.concat(
        [latest_visits.assign(ahead=ahead, at=latest_visits["month"] + ahead) for ahead in HORIZONS]
    )
    visit = targets["patient_id"].astype(str) + "_" + targets["month"].astype(str) + "_"
    forecasts = []
    for score in SCORES:
        ids = visit + score + "_plus_" + targets["ahead"].astype(str) + "_months"
        predicted = train_forecast(pairs(features, clinical, score), supplemental_pairs[score], targets)
        forecasts.append(pd.DataFrame({"prediction_id": ids, "rating": predicted}))
    pd.concat(forecasts).to_csv("submission.csv", index=False)
    print(f"validation SMAPE: {np.mean(errors):.3f}")


main()
