"""Forecast UPDRS scores with a joint model of scores, visits and proteins, built on a latent severity.

A mixed model of the scores gives draws of each known patient's severity over time. The draws tell how
severity determines visits, proteins and scores. Each test patient is compared with all draws: they are
weighted by the likelihood of the patient's visits and samples, and give the distribution of a score. The
forecast is the value with the lowest expected SMAPE.
"""

import os
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter1d
from scipy.optimize import minimize

SEED = int(os.environ.get("SEED", "0"))
SCORES = ["updrs_1", "updrs_2", "updrs_3", "updrs_4"]
HORIZONS = [0, 6, 12, 24]
FOLDS, FOLD_DRAWS, DRAWS = 5, 25, 60
GRID = np.linspace(-4, 5, 181)  # of severity
SEVERITY_BANDWIDTH, MONTH_BANDWIDTH = 0.15, 18.0
FORECASTS = np.unique(np.concatenate([np.arange(0, 15, 0.1), np.arange(15, 50, 0.25), np.arange(50, 133)]))
# Where the fit of the severity model begins, apart from the levels of the scores: logarithms of the slopes of
# three scores, sds of a patient's offsets, the dispersion, the sd of speed, the sd and the memory of drift.
START = np.log([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.2, 0.2, 0.2, 1.0])
ROUNDS, ITERATIONS = 2, 30


class Course(NamedTuple):
    """Visits of known patients as arrays of patients by visits (by scores)."""

    patients: np.ndarray
    years: np.ndarray
    scores: np.ndarray  # parts 1 to 3; NaN if unknown


class Pool(NamedTuple):
    """Draws of the severity of known patients in each of the months, and of its speed per year."""

    severity: np.ndarray
    speed: np.ndarray


def smape(actual, forecast):
    """Return the terms of SMAPE in percent, 0 to 200; a term with both values 0 counts as 0."""
    scale = (np.abs(actual) + np.abs(forecast)) / 2
    return 100 * np.divide(np.abs(actual - forecast), scale, out=np.zeros_like(scale), where=scale > 0)


def arrange(clinical):
    """Arrange a clinical table as arrays, padded with visits without scores."""
    position = clinical.groupby("patient_id").cumcount().to_numpy()
    patients, row = np.unique(clinical["patient_id"], return_inverse=True)
    years = np.zeros((len(patients), position.max() + 1))
    scores = np.full((*years.shape, 3), np.nan)
    years[row, position] = clinical["visit_month"] / 12
    scores[row, position] = clinical[SCORES[:3]]
    return Course(patients, years, scores)


class SeverityModel:
    """A mixed model: log scores are linear in a severity with a random start, a random speed and a drift."""

    def unpack(self, settings):
        """Name the settings."""
        slopes, offsets = np.exp(settings[:3]), np.exp(settings[3:6])
        dispersion, speed_sd, drift_sd, memory = np.exp(settings[6:10])
        levels, speed, acceleration = settings[10:13], settings[13], settings[14]
        return slopes, offsets, dispersion, speed_sd, drift_sd, memory, levels, speed, acceleration

    def severity_covariance(self, settings, years, others):
        """Return the covariance of severities at two lists of times, one of each per patient."""
        _, _, _, speed_sd, drift_sd, memory, _, _, acceleration = self.unpack(settings)
        left, right = years[:, :, None], others[:, None, :]
        trend = (1 + acceleration * left) * (1 + acceleration * right) + speed_sd**2 * left * right
        return trend + drift_sd**2 * np.exp(-np.abs(left - right) / memory)

    def system(self, settings, course, fitted):
        """Return covariance and residuals of the working responses around their mean."""
        slopes, offsets, dispersion, _, _, _, levels, speed, _ = self.unpack(settings)
        known = ~np.isnan(course.scores)
        actual = np.where(known, course.scores, 1.0)
        means = np.exp(fitted)
        working = fitted + (actual - means) / means
        variance = np.where(known, 1 / means + dispersion, 1e6)
        center = levels + slopes * speed * course.years[:, :, None]
        residual = np.where(known, working - center, 0.0)
        covariance = self.severity_covariance(settings, course.years, course.years)
        count, visits = course.years.shape
        total = np.einsum("ntu,k,l->nktlu", covariance, slopes, slopes)
        for score in range(3):
            total[:, score, :, score] += offsets[score] ** 2
        total = total.reshape(count, 3 * visits, 3 * visits)
        rows = np.arange(3 * visits)
        total[:, rows, rows] += variance.transpose(0, 2, 1).reshape(count, -1)
        return total, residual.transpose(0, 2, 1).reshape(count, -1)

    def objective(self, settings, courses, fitted):
        """Return the negative log-likelihood of the working responses."""
        value = 0.0
        for course, guess in zip(courses, fitted, strict=True):
            total, residual = self.system(settings, course, guess)
            factor = np.linalg.cholesky(total)
            scaled = np.linalg.solve(factor, residual[:, :, None])[:, :, 0]
            value += np.log(np.diagonal(factor, axis1=1, axis2=2)).sum() + 0.5 * (scaled**2).sum()
        return value

    def refit(self, settings, courses, fitted):
        """Return the posterior means of the log scores."""
        slopes, offsets, _, _, _, _, levels, speed, _ = self.unpack(settings)
        result = []
        for course, guess in zip(courses, fitted, strict=True):
            total, residual = self.system(settings, course, guess)
            weights = np.linalg.solve(total, residual[:, :, None])[:, :, 0]
            weights = weights.reshape(len(total), 3, -1)
            covariance = self.severity_covariance(settings, course.years, course.years)
            shared = np.einsum("ntu,k,nku->nt", covariance, slopes, weights)
            center = levels + slopes * speed * course.years[:, :, None]
            own = offsets**2 * weights.sum(axis=2)
            result.append((center + slopes * shared[:, :, None] + own[:, None, :]).clip(-2, 5))
        return result

    def fit(self, courses):
        """Fit the settings by penalized quasi-likelihood."""
        fitted = [np.log(np.where(np.isnan(course.scores), 5.0, course.scores) + 0.5) for course in courses]
        known = np.concatenate([course.scores.reshape(-1, 3) for course in courses])
        settings = np.concatenate([START, np.nanmean(np.log(known + 0.5), axis=0), [0.0, 0.0]])
        for _ in range(ROUNDS):
            for _ in range(2):
                fitted = self.refit(settings, courses, fitted)
            found = minimize(
                self.objective,
                settings,
                (courses, fitted),
                method="L-BFGS-B",
                options={"maxiter": ITERATIONS},
            )
            settings = found.x
        self.settings, self.fitted = settings, self.refit(settings, courses, fitted)
        return self

    def draw(self, rng, course, fitted, months, draws):
        """Draw severities in `months` and speeds of the patients: means, and draws by patient."""
        slopes, _, _, speed_sd, _, _, _, speed, acceleration = self.unpack(self.settings)
        count = len(course.patients)
        years = np.tile(np.array(months) / 12, (count, 1))
        total, residual = self.system(self.settings, course, fitted)

        def speed_covariance(times):
            return acceleration * (1 + acceleration * times) + speed_sd**2 * times

        cross = self.severity_covariance(self.settings, years, course.years)
        cross = np.concatenate([cross, speed_covariance(course.years)[:, None, :]], axis=1)
        cross = np.einsum("nmt,k->nmkt", cross, slopes).reshape(count, len(months) + 1, -1)
        prior = np.zeros((count, len(months) + 1, len(months) + 1))
        prior[:, :-1, :-1] = self.severity_covariance(self.settings, years, years)
        prior[:, -1, :-1] = prior[:, :-1, -1] = speed_covariance(years)
        prior[:, -1, -1] = acceleration**2 + speed_sd**2
        gain = np.linalg.solve(total, cross.transpose(0, 2, 1)).transpose(0, 2, 1)
        center = np.append(speed * np.array(months) / 12, speed)
        means = center + np.einsum("nmi,ni->nm", gain, residual)
        covariance = prior - gain @ cross.transpose(0, 2, 1) + 1e-6 * np.eye(len(months) + 1)
        noise = rng.normal(size=(count, draws, len(months) + 1))
        return means, means[:, None] + noise @ np.linalg.cholesky(covariance).transpose(0, 2, 1)


def fit_logistic(inputs, outcomes):
    """Fit a logistic regression with a weak prior."""
    weights = np.zeros(inputs.shape[1])
    for _ in range(12):
        probabilities = 1 / (1 + np.exp(-inputs @ weights))
        hessian = (inputs.T * (probabilities * (1 - probabilities))) @ inputs + np.eye(len(weights))
        weights += np.linalg.solve(hessian, inputs.T @ (outcomes - probabilities) - weights)
    return weights


def polynomial(severity, degree):
    """Return the powers of severity, as the last axis."""
    return severity.clip(-3, 3)[..., None] ** np.arange(degree + 1)


class VisitModel:
    """Probabilities of a visit in a month, and of not coming again, by severity."""

    def __init__(self, months, sample_months, visits, draws):
        """Fit both to the visits of known patients and to draws of their severity."""
        self.months = months
        kinds = np.where(np.isin(months, sample_months), 1, 2)
        self.kinds = np.where(np.array(months) == 6, 0, kinds)
        rows = {kind: ([], []) for kind in (0, 1, 2, "leave")}
        for patient, severity in draws.items():
            came = np.isin(months, list(visits[patient]))
            last = np.flatnonzero(came)[-1]
            for kind in (0, 1, 2):
                chosen = np.flatnonzero(self.kinds == kind)
                chosen = chosen[(chosen > 0) & (chosen <= last)]
                rows[kind][0].append(severity[:, chosen].ravel())
                rows[kind][1].append(np.tile(came[chosen], len(severity)))
            if last < len(months) - 1:
                rows["leave"][0].append(severity[:, : last + 1].ravel())
                rows["leave"][1].append(np.tile(np.arange(last + 1) == last, len(severity)))
            else:
                rows["leave"][0].append(severity[:, :last].ravel())
                rows["leave"][1].append(np.zeros(severity[:, :last].size, bool))
        self.weights = {
            kind: fit_logistic(polynomial(np.concatenate(x), 1 if kind == "leave" else 2), np.concatenate(y))
            for kind, (x, y) in rows.items()
        }

    def come(self, severity):
        """Return the probability of a visit in each month."""
        odds = np.stack(
            [polynomial(severity[:, m], 2) @ self.weights[kind] for m, kind in enumerate(self.kinds)], axis=1
        )
        return (1 / (1 + np.exp(-odds))).clip(1e-4, 1 - 1e-4)

    def leave(self, severity):
        """Return the probability that each month is the last one."""
        return 1 / (1 + np.exp(-polynomial(severity, 1) @ self.weights["leave"]))


def read_samples():
    """Return each protein's mean log amount over its peptides, by patient and month, centered."""
    table = pd.concat([pd.read_csv(f"{name}_peptides.csv") for name in ("train", "test")])
    logs = np.log(table["PeptideAbundance"])
    logs -= logs.groupby(table["Peptide"]).transform("mean")
    samples = logs.groupby([table["patient_id"], table["visit_month"], table["UniProt"]]).mean().unstack()
    samples = samples.fillna(samples.groupby(level=0).transform("mean")).fillna(0.0)
    return samples.sort_index()


def rotation(count):
    """Return an orthogonal matrix whose first row averages `count` samples."""
    basis = np.eye(count)
    basis[:, 0] = 1
    return np.linalg.qr(basis)[0].T * np.where(np.arange(count) == 0, -1, 1)[:, None]


class ProteinModel:
    """Log amounts: linear in severity and speed, with effects of the person and of the sample."""

    def __init__(self, samples):
        """Estimate the covariances from all samples; no scores are needed."""
        groups = samples.groupby(level=0)
        within = (samples - groups.transform("mean")).to_numpy()
        self.within = within.T @ within / (len(samples) - groups.ngroups)
        sizes = groups.size().to_numpy()
        between = groups.mean().var().to_numpy() - np.diag(self.within) * (1 / sizes).mean()
        self.person = np.diag(between.clip(1e-3))
        self.samples = {patient: table.droplevel(0) for patient, table in groups}
        self.inverse_within = np.linalg.inv(self.within)
        self.inverse_means = {
            n: np.linalg.inv(self.within + n * self.person) for n in range(1, max(sizes) + 1)
        }

    def rotate(self, patient, until):
        """Return the months of a patient's samples, and independent rows of amounts with their precisions."""
        table = self.samples[patient]
        table = table[table.index <= until]
        count = len(table)
        precisions = [self.inverse_means[count], *[self.inverse_within] * (count - 1)]
        turn = rotation(count)
        return list(table.index), turn, turn @ table.to_numpy(), precisions

    def fit(self, patients, severity, speed, months):
        """Estimate the loadings from expected severities, with a prior that removes irrelevant ones."""
        size = len(self.within)
        normal, right = np.zeros((3, size, 3, size)), np.zeros((3, size))
        for patient in patients:
            if patient not in self.samples:
                continue
            when, turn, amounts, precisions = self.rotate(patient, np.inf)
            columns = [months.index(month) for month in when]
            ones = np.ones(len(when))
            inputs = np.column_stack([severity[patient][columns], speed[patient] * ones, ones])
            for row, precision, values in zip(turn @ inputs, precisions, amounts, strict=True):
                normal += np.einsum("a,b,pq->apbq", row, row, precision)
                right += np.outer(row, precision @ values)
        normal, right = normal.reshape(3 * size, -1), right.ravel()
        relevance = np.concatenate([np.full(size, 100.0), np.full(size, 1.0), np.full(size, 1e-2)])
        for _ in range(60):
            covariance = np.linalg.inv(normal + np.diag(relevance))
            mean = covariance @ right
            update = 1 / (mean**2 + np.diag(covariance))
            relevance[: 2 * size] = update[: 2 * size]
        self.loadings = mean.reshape(3, size)
        return self

    def log_likelihood(self, pool, patient, until, months):
        """Return the log-likelihood of a patient's samples for every draw of the pool, up to a constant."""
        when, turn, amounts, precisions = self.rotate(patient, until)
        severity = pool.severity[:, [months.index(month) for month in when]] @ turn.T
        ones = turn.sum(axis=1)
        result = np.zeros(len(severity))
        for row, (precision, values) in enumerate(zip(precisions, amounts, strict=True)):
            values = values - ones[row] * self.loadings[2]
            inputs = np.column_stack([severity[:, row], ones[row] * pool.speed])
            quadratic = self.loadings[:2] @ precision @ self.loadings[:2].T
            linear = self.loadings[:2] @ precision @ values
            result += inputs @ linear - 0.5 * np.einsum("ij,ij->i", inputs @ quadratic, inputs)
        return result


def score_tables(clinical, draws, months):
    """Return, for each score, the probability of each value (last axis) by month and severity."""
    column = {month: index for index, month in enumerate(months)}
    tables = {}
    for score in SCORES:
        rows = clinical.dropna(subset=score)
        values = rows[score].to_numpy(int)
        counts = np.zeros((len(months), len(GRID), values.max() + 1))
        for patient, month, value in zip(rows["patient_id"], rows["visit_month"], values, strict=True):
            severity = draws[patient][:, column[month]]
            bins = np.rint((severity - GRID[0]) / (GRID[1] - GRID[0])).astype(int).clip(0, len(GRID) - 1)
            np.add.at(counts[column[month], :, value], bins, 1.0)
        counts = gaussian_filter1d(counts, SEVERITY_BANDWIDTH / (GRID[1] - GRID[0]), axis=1, mode="constant")
        gaps = np.subtract.outer(months, months) / MONTH_BANDWIDTH
        counts = np.einsum("ab,bsv->asv", np.exp(-0.5 * gaps**2), counts) + 1e-9 * counts.sum(axis=(0, 1))
        tables[score] = counts / counts.sum(axis=2, keepdims=True)
    return tables


class Forecaster:
    """The joint model, fitted to known patients."""

    def __init__(self, clinical, supplemental, samples, months, draws):
        """Fit all parts. `samples` are those of all patients, `months` those of all visits."""
        rng = np.random.default_rng(SEED)
        self.months = months
        self.proteins = proteins = ProteinModel(samples)
        sample_months = samples.index.get_level_values(1).unique()
        courses = [arrange(clinical), arrange(supplemental)]
        model = SeverityModel().fit(courses)
        drawn, means = {}, {}
        for course, fitted in zip(courses, model.fitted, strict=True):
            mean, draw = model.draw(rng, course, fitted, self.months, draws)
            drawn |= dict(zip(course.patients, draw, strict=True))
            means |= dict(zip(course.patients, mean, strict=True))
        paths = np.concatenate(list(drawn.values()))
        self.pool = Pool(paths[:, :-1], paths[:, -1])
        known = clinical["patient_id"].unique()
        proteins.fit(known, {p: means[p][:-1] for p in known}, {p: means[p][-1] for p in known}, self.months)
        visits = clinical.groupby("patient_id")["visit_month"].agg(set)
        self.visits = VisitModel(self.months, sample_months, visits, {p: drawn[p][:, :-1] for p in known})
        self.tables = score_tables(
            pd.concat([clinical, supplemental]), {p: d[:, :-1] for p, d in drawn.items()}, self.months
        )
        come, leave = self.visits.come(self.pool.severity), self.visits.leave(self.pool.severity)
        self.log_came, self.log_missed, self.log_stayed = np.log(come), np.log1p(-come), np.log1p(-leave)
        possible = clinical["visit_month"].isin(sample_months).sum()
        share = samples.index.get_level_values(0).isin(known).sum() / possible
        self.comes, self.leaves = rng.random(come.shape) < come, rng.random(leave.shape) < leave
        self.gives_sample = self.comes & np.isin(self.months, sample_months)
        self.gives_sample &= rng.random(come.shape) < share
        step = GRID[1] - GRID[0]
        self.bins = np.rint((self.pool.severity - GRID[0]) / step).astype(int).clip(0, len(GRID) - 1)
        self.losses = {
            score: smape(np.arange(table.shape[2])[:, None], FORECASTS)
            for score, table in self.tables.items()
        }

    def forecast(self, patient, visits, until):
        """Return the forecasts by score and horizon, from a patient's visits and samples until a month."""
        end = self.months.index(until)
        came = np.isin(self.months, list(visits))[1 : end + 1]
        log_weights = np.where(came, self.log_came[:, 1 : end + 1], self.log_missed[:, 1 : end + 1]).sum(
            axis=1
        )
        log_weights += self.log_stayed[:, :end].sum(axis=1)
        log_weights += self.proteins.log_likelihood(self.pool, patient, until, self.months)
        weights = np.exp(log_weights - log_weights.max())
        staying = np.cumsum(self.leaves[:, end:-1], axis=1) == 0
        taken = (self.proteins.samples[patient].index <= until).sum()
        weights /= taken + (staying & self.gives_sample[:, end + 1 :]).sum(axis=1)
        forecasts = {}
        for ahead in HORIZONS:
            if until + ahead in self.months:
                month = self.months.index(until + ahead)
                seen = staying[:, month - end - 1] & self.comes[:, month] if ahead else 1
            else:
                month, seen = len(self.months) - 1, 1
            density = np.bincount(self.bins[:, month], weights * seen, len(GRID))
            for score in SCORES:
                expected = density @ self.tables[score][month] @ self.losses[score]
                forecasts[score, ahead] = FORECASTS[expected.argmin()]
        return forecasts


def validate(forecaster, clinical, patients):
    """Return SMAPE terms and weights: from every visit with a sample, as if one were drawn per patient."""
    measured = clinical.set_index(["patient_id", "visit_month"])[SCORES]
    visits = clinical.groupby("patient_id")["visit_month"].agg(set)
    errors, weights = [], []
    for patient in patients:
        ends = forecaster.proteins.samples[patient].index if patient in forecaster.proteins.samples else []
        for until in ends:
            for (score, ahead), forecast in forecaster.forecast(patient, visits[patient], until).items():
                if (patient, until + ahead) in measured.index:
                    actual = measured.at[(patient, until + ahead), score]
                    if not np.isnan(actual):
                        errors.append(smape(np.array([actual]), np.array([forecast]))[0])
                        weights.append(1 / len(ends))
    return errors, weights


def main():
    """Cross-validate over patients, then forecast the scores of the test patients."""
    clinical, supplemental = (
        pd.read_csv(f"{name}_clinical_data.csv").sort_values(["patient_id", "visit_month"])
        for name in ("train", "supplemental")
    )
    visits, samples = pd.read_csv("test.csv"), read_samples()
    months = sorted({month for table in (clinical, supplemental, visits) for month in table["visit_month"]})
    patients = np.random.default_rng(SEED).permutation(clinical["patient_id"].unique())
    errors = []
    for fold in range(FOLDS):
        held_out = patients[fold::FOLDS]
        known = clinical[~clinical["patient_id"].isin(held_out)]
        forecaster = Forecaster(known, supplemental, samples, months, FOLD_DRAWS)
        fold_errors, weights = validate(forecaster, clinical, held_out)
        errors.append(np.average(fold_errors, weights=weights))
        print(f"fold {fold + 1} of {FOLDS}: SMAPE {errors[-1]:.3f}", flush=True)

    forecaster = Forecaster(clinical, supplemental, samples, months, DRAWS)
    rows = []
    for patient, own_months in visits.groupby("patient_id")["visit_month"]:
        until = own_months.max()
        for (score, ahead), forecast in forecaster.forecast(patient, set(own_months), until).items():
            rows.append((f"{patient}_{until}_{score}_plus_{ahead}_months", forecast))
    pd.DataFrame(rows, columns=["prediction_id", "rating"]).to_csv("submission.csv", index=False)
    print(f"validation SMAPE: {np.mean(errors):.3f}")


main()
