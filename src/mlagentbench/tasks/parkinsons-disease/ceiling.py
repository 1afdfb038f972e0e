"""The lowest SMAPE that a forecast can be expected to reach, given all parameters of the generator."""

import json
from pathlib import Path
from typing import NamedTuple

import generator
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import nbinom

Array = NDArray[np.float64]

MONTHS = sorted(generator.REGULAR_MONTHS + generator.EXTRA_MONTHS)
HORIZONS = (0, 6, 12, 24)  # months
PARTICLES = 40_000
SEVERITIES = np.linspace(-4.5, 6.5, 221)
OFFSET_QUANTILES = ndtri((np.arange(20) + 0.5) / 20)
FORECASTS = np.unique(np.concatenate([np.arange(0, 15, 0.1), np.arange(15, 50, 0.25), np.arange(50, 133)]))


class _Particles(NamedTuple):
    """Courses of the disease, drawn from the generator's distribution; one row each, one column per month."""

    severity: Array
    speed: Array
    log_came: Array  # log probabilities of a visit, of none, and of not leaving after the month
    log_missed: Array
    log_stayed: Array
    comes: NDArray[np.bool_]  # drawn with these probabilities
    leaves: NDArray[np.bool_]
    gives_sample: NDArray[np.bool_]


def ceiling(public: Path, private: Path) -> float:
    """Return the SMAPE of Bayes-optimal forecasts on the hidden test set.

    The forecasts know all parameters of the generator, including the loadings of the proteins, but of a test
    patient only what is public. 40,000 courses of the disease are drawn from the generator's distribution and
    weighted, for every patient, by the likelihood of the visits, the end of the record and the peptides. The
    weighted courses with a visit in the month in question give the distribution of a score, and the forecast
    is the value with the lowest expected SMAPE. The loadings are generated again from the seed in `private`.

    Raises:
        ValueError: The proteins have other names than the generator's, as in a twin.
    """
    visits, clinical, supplemental = (
        pd.read_csv(public / f"{name}.csv")
        for name in ("test", "train_clinical_data", "supplemental_clinical_data")
    )
    patients = visits["patient_id"].nunique() + clinical["patient_id"].nunique()
    seed = json.loads((private / "seed.json").read_text())
    _, effects = generator.generate_with_effects(patients, supplemental["patient_id"].nunique(), seed)
    peptides = pd.concat([pd.read_csv(public / f"{name}_peptides.csv") for name in ("train", "test")])
    if set(peptides["UniProt"]) != set(effects.names):
        raise ValueError(
            "The proteins are not the generator's. The ceiling of a twin is that of its original."
        )
    answers, measured = (
        pd.read_csv(private / f"{name}.csv", index_col="prediction_id").iloc[:, 0]
        for name in ("answers", "measured")
    )
    actual = answers[measured == 1].to_dict()
    samples = _standardize(peptides, effects.names)
    particles = _draw_particles(np.random.default_rng(0))
    step = SEVERITIES[1] - SEVERITIES[0]
    bins = np.rint((particles.severity - SEVERITIES[0]) / step).astype(int).clip(0, len(SEVERITIES) - 1)
    probabilities = {month: _score_probabilities(month) for month in MONTHS}
    errors = []
    for patient, months in visits.groupby("patient_id")["visit_month"]:
        cutoff = int(months.max())
        end, own_samples = MONTHS.index(cutoff), samples.loc[[patient]]
        log_weights = _visit_log_likelihood(particles, set(months), end)
        log_weights += _sample_log_likelihood(particles, own_samples, effects)
        weights = np.exp(log_weights - log_weights.max())
        present = _presence_after(particles, end)
        weights /= len(own_samples) + (present & particles.gives_sample)[:, end + 1 :].sum(axis=1)
        for ahead in HORIZONS:
            if cutoff + ahead not in MONTHS:
                continue
            month = MONTHS.index(cutoff + ahead)
            seen = weights * present[:, month] if ahead else weights
            density = np.bincount(bins[:, month], seen, len(SEVERITIES))
            for score in generator.SCORES:
                name = f"{patient}_{cutoff}_{score}_plus_{ahead}_months"
                if name in actual:
                    distribution: Array = density @ probabilities[cutoff + ahead][score]
                    values = np.arange(len(distribution), dtype=float)
                    expected = distribution @ _smape(values[:, None], FORECASTS)
                    errors.append(_smape(np.array(actual[name]), FORECASTS[expected.argmin()]))
    return float(np.mean(errors))


def _smape(actual: Array, forecast: Array) -> Array:
    """Return the terms of SMAPE in percent; a term with both values 0 counts as 0."""
    scale = np.asarray((np.abs(actual) + np.abs(forecast)) / 2, float)
    errors = np.divide(np.abs(forecast - actual), scale, out=np.zeros_like(scale), where=scale > 0)
    return np.asarray(100 * errors)


def _draw_particles(rng: np.random.Generator) -> _Particles:
    healthy = rng.random(PARTICLES) < generator.HEALTHY_SHARE
    mean, sd = np.where(healthy, *np.array([generator.HEALTHY, generator.ILL])[:, :, None])
    start = rng.normal(mean, sd)
    speed = (
        generator.SPEED_BASE + generator.SPEED_SLOPE * start + rng.normal(0, generator.SPEED_SD, PARTICLES)
    )
    speed = np.maximum(speed, 0)
    severity, drift = np.zeros((PARTICLES, len(MONTHS))), np.zeros(PARTICLES)
    for column, month in enumerate(MONTHS):
        drift = generator.DRIFT_MEMORY * drift + rng.normal(0, generator.DRIFT_SD, PARTICLES)
        severity[:, column] = start + speed * month / 12 + drift
    comes = np.column_stack(
        [generator.visit_probability(month, severity[:, column]) for column, month in enumerate(MONTHS)]
    )
    leaves = generator.dropout_probability(severity)
    regular = np.isin(MONTHS, generator.REGULAR_MONTHS)
    return _Particles(
        severity,
        speed,
        log_came=np.log(comes),
        log_missed=np.log1p(-comes.clip(max=0.99)),
        log_stayed=np.log1p(-leaves),
        comes=rng.random(severity.shape) < comes,
        leaves=rng.random(severity.shape) < leaves,
        gives_sample=(rng.random(severity.shape) < generator.SAMPLE_SHARE) & regular,
    )


def _visit_log_likelihood(particles: _Particles, visits: set[int], end: int) -> Array:
    """Return the log-likelihood of the visits up to the last one, and of not having left before it."""
    came = np.isin(MONTHS, list(visits))[1 : end + 1]  # everybody comes at month 0
    columns = np.where(came, particles.log_came[:, 1 : end + 1], particles.log_missed[:, 1 : end + 1])
    return np.asarray(columns.sum(axis=1) + particles.log_stayed[:, :end].sum(axis=1))


def _presence_after(particles: _Particles, end: int) -> NDArray[np.bool_]:
    """Return in which months each particle has a visit; only columns after `end` have a meaning."""
    left = np.cumsum(particles.leaves[:, end:-1], axis=1) > 0
    present = particles.comes.copy()
    present[:, end + 1 :] &= ~left
    return present


def _standardize(peptides: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return, by patient and month, each protein's mean log amount over its peptides, and their number."""
    logs = np.log(peptides["PeptideAbundance"])
    logs -= logs.groupby(peptides["Peptide"]).transform("mean")
    keys = [peptides["patient_id"], peptides["visit_month"], peptides["UniProt"]]
    table: pd.DataFrame = logs.groupby(keys).agg(["mean", "size"]).unstack()
    return table.reindex(columns=pd.MultiIndex.from_product([["mean", "size"], names]))


def _sample_log_likelihood(
    particles: _Particles, samples: pd.DataFrame, effects: generator.ProteinEffects
) -> Array:
    """Return the log-likelihood of all samples of a patient, up to a constant."""
    count, proteins = len(samples), len(effects.names)
    amounts, sizes = samples["mean"].to_numpy().ravel(), samples["size"].to_numpy().ravel()
    design = np.hstack(
        [
            np.kron(np.eye(count), effects.loadings[0][:, None]),
            np.tile(effects.loadings[1][:, None], (count, 1)),
        ]
    )
    noise = np.diag(generator.SAMPLE_SD**2 + generator.PEPTIDE_SD**2 / np.nan_to_num(sizes, nan=1.0))
    person = np.kron(np.ones((count, count)), generator.PERSON_SD**2 * np.eye(proteins))
    covariance = noise + person + np.kron(np.eye(count), effects.nuisance.T @ effects.nuisance)
    known = ~np.isnan(amounts)
    weighted = np.linalg.solve(covariance[np.ix_(known, known)], np.column_stack([design, amounts])[known])
    precision, linear = design[known].T @ weighted[:, :-1], design[known].T @ weighted[:, -1]
    columns = [MONTHS.index(month) for month in samples.index.get_level_values(1)]
    latents = np.column_stack(
        [particles.severity[:, columns] - effects.center[0], particles.speed - effects.center[1]]
    )
    return np.asarray(latents @ linear - 0.5 * np.einsum("ij,ij->i", latents @ precision, latents))


def _score_probabilities(month: int) -> dict[str, Array]:
    """Return, for every score, the probability of each value (columns) at each of SEVERITIES (rows)."""
    medicated = generator.medication_probability(month, SEVERITIES)
    acting = medicated * generator.ACTING_SHARE
    result = {}
    for (name, typical), offset_sd in zip(
        generator.TYPICAL_SCORES.items(), generator.OFFSET_SDS, strict=True
    ):
        logs = generator.LOG_SLOPES[name] * SEVERITIES[:, None] + offset_sd * OFFSET_QUANTILES
        means, maximum = typical * np.exp(logs), generator.MAX_SCORES[name]
        result[name] = _capped_probabilities(means, maximum)
        if name == "updrs_3":
            lowered = _capped_probabilities(means * generator.ACTING_FACTOR, maximum)
            result[name] = (1 - acting)[:, None] * result[name] + acting[:, None] * lowered
    rng = np.random.default_rng(1)
    values = 1 + rng.poisson(1.5 + 2 * rng.gamma(1.5, size=200_000))
    shares = np.bincount(values.clip(max=generator.MAX_SCORES["updrs_4"])) / len(values)
    with_medication, without = (1 - share for share in generator.MISSING_PART_4)
    complicated = medicated * generator.complication_probability(month, SEVERITIES) * with_medication
    result["updrs_4"] = complicated[:, None] * shares
    result["updrs_4"][:, 0] += medicated * with_medication - complicated + (1 - medicated) * without
    return result


def _capped_probabilities(means: Array, maximum: int) -> Array:
    """Return the probabilities of scores 0 to `maximum`, averaged over the columns of `means`."""
    shape = generator.RATER_SHAPE
    values = np.arange(maximum)
    below = np.stack(
        [np.asarray(nbinom.pmf(value, shape, shape / (shape + means))).mean(axis=1) for value in values]
    )
    return np.column_stack([below.T, 1 - below.sum(axis=0)])
