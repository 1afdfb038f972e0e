"""Forecast UPDRS scores with a linear function of time, fitted by stochastic gradient descent."""

import os

import numpy as np
import pandas as pd

SCORES = ["updrs_1", "updrs_2", "updrs_3", "updrs_4"]
HORIZONS = [0, 6, 12, 24]
LEARNING_RATE = 1e-6
EPOCHS = 18
FIRST_GUESS = 10.0
INITIAL_SPREAD = 1.0
SEED = int(os.environ.get("SEED", "0"))


def smape(actual, forecast):
    """Return the terms of SMAPE in percent, 0 to 200; a term with both values 0 counts as 0."""
    scale = (np.abs(actual) + np.abs(forecast)) / 2
    return 100 * np.divide(np.abs(actual - forecast), scale, out=np.zeros_like(scale), where=scale > 0)


def pairs(clinical, score):
    """Pair every visit with every horizon at which the score was measured."""
    measured = clinical.dropna(subset=score)[["patient_id", "visit_month", score]]
    tables = []
    for months_ahead in HORIZONS:
        shifted = measured.assign(
            visit_month=measured["visit_month"] - months_ahead, months_ahead=months_ahead
        )
        tables.append(
            clinical[["patient_id", "visit_month"]].merge(shifted, on=["patient_id", "visit_month"])
        )
    return pd.concat(tables).rename(columns={score: "rating"})


def features(table):
    """Return the inputs of the model, in years."""
    return table[["visit_month", "months_ahead"]].to_numpy(float) / 12


def fit_predict(rows, new_rows):
    """Fit a model of the ratings, and forecast those of new rows. You can replace it by any other model."""
    rng = np.random.default_rng(SEED)
    inputs, ratings = features(rows), rows["rating"].to_numpy(float)
    weights, intercept = rng.normal(0, INITIAL_SPREAD, inputs.shape[1]), FIRST_GUESS
    for _ in range(EPOCHS):
        for row in rng.permutation(len(ratings)):
            error = inputs[row] @ weights + intercept - ratings[row]
            weights -= LEARNING_RATE * error * inputs[row]
            intercept -= LEARNING_RATE * error
    return np.maximum(features(new_rows) @ weights + intercept, 0)


def sample_weights(rows, samples):
    """Weight each row as often as the test would ask for it: one visit with a sample is drawn per patient."""
    visits = rows["patient_id"].astype(str) + "_" + rows["visit_month"].astype(str)
    count = samples.str.partition("_")[0].value_counts()
    return visits.isin(samples) / rows["patient_id"].astype(str).map(count).fillna(1)


def main():
    """Cross-validate over patients, then forecast the scores of the test patients."""
    clinical, visits = pd.read_csv("train_clinical_data.csv"), pd.read_csv("test.csv")
    samples = pd.read_csv("train_proteins.csv", usecols=["visit_id"])["visit_id"].drop_duplicates()
    pairs_by_score = {score: pairs(clinical, score) for score in SCORES}
    patients = np.random.default_rng(SEED).permutation(clinical["patient_id"].unique())

    errors_by_fold = []
    for fold in range(5):
        fold_errors, weights = [], []
        for score in SCORES:
            is_validation = pairs_by_score[score]["patient_id"].isin(patients[fold::5])
            predicted = fit_predict(
                pairs_by_score[score][~is_validation], pairs_by_score[score][is_validation]
            )
            fold_errors.append(
                smape(pairs_by_score[score][is_validation]["rating"].to_numpy(float), predicted)
            )
            weights.append(sample_weights(pairs_by_score[score][is_validation], samples))
        errors_by_fold.append(np.average(np.concatenate(fold_errors), weights=np.concatenate(weights)))
        print(f"fold {fold + 1} of 5: SMAPE {errors_by_fold[-1]:.3f}", flush=True)

    latest_visits = visits.sort_values("visit_month").groupby("patient_id").tail(1)
    requested = pd.concat([latest_visits.assign(months_ahead=months_ahead) for months_ahead in HORIZONS])
    forecasts = []
    for score in SCORES:
        ids = (
            requested["visit_id"] + "_" + score + "_plus_" + requested["months_ahead"].astype(str) + "_months"
        )
        forecasts.append(
            pd.DataFrame({"prediction_id": ids, "rating": fit_predict(pairs_by_score[score], requested)})
        )
    forecasts = pd.concat(forecasts)
    if not np.isfinite([*errors_by_fold, *forecasts["rating"]]).all():
        raise SystemExit("not all forecasts are finite; submission.csv was not written")
    forecasts.to_csv("submission.csv", index=False)
    print(f"validation SMAPE: {np.mean(errors_by_fold):.3f}")


main()
