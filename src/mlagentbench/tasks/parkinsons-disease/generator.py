"""Generates patients with the tables of the AMP-PD study, from a latent severity that grows."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

REGULAR_MONTHS = (0, 6, 12, 24, 36, 48, 60, 72, 84)
EXTRA_MONTHS = (3, 9, 18, 30, 42, 54, 66, 78)  # mostly for sicker patients
SUPPLEMENTAL_MONTHS = (0, 6, 12, 24, 36)
SCORES = ("updrs_1", "updrs_2", "updrs_3", "updrs_4")
MEDICATION = "upd23b_clinical_state_on_medication"
TYPICAL_SCORES = {"updrs_1": 5.5, "updrs_2": 5.0, "updrs_3": 15.0}  # at severity 0
LOG_SLOPES = {
    "updrs_1": 0.50,
    "updrs_2": 0.75,
    "updrs_3": 0.65,
}  # increase of the logarithm per unit of severity
HEALTHY_SHARE, HEALTHY, ILL = 0.2, (-1.8, 0.5), (0.2, 0.75)  # mean and sd of severity at month 0
SPEED_BASE, SPEED_SLOPE, SPEED_SD = 0.14, 0.06, 0.10  # of severity per year, by severity at month 0
DRIFT_MEMORY, DRIFT_SD = 0.8, 0.12  # of severity around its trend, from one possible month to the next
OFFSET_SDS = (0.35, 0.30, 0.25)  # of a patient's log scores from what severity predicts
RATER_SHAPE = 12  # of the gamma distribution of raters and days
ACTING_SHARE, ACTING_FACTOR = 0.75, 0.72  # medication acts at this share of visits, and lowers updrs_3
MISSING_PART_4 = (0.20, 0.55)  # with medication, and without
SAMPLE_SHARE = 0.92  # of the visits in regular months
MAX_SCORES = {"updrs_1": 52, "updrs_2": 52, "updrs_3": 132, "updrs_4": 24}
PROTEINS = 60
INFORMATIVE_PROTEINS = 9  # related to the disease; the last three of them to its speed
NUISANCE_FACTORS = 3  # shift many proteins of a sample together: handling, blood, dilution
PERSON_SD, SAMPLE_SD, PEPTIDE_SD = 0.25, 0.15, 0.12  # of the logarithms of amounts
AMINO_ACIDS = np.array(list("ACDEFGHIKLMNPQRSTVWY"))


class Tables(NamedTuple):
    """The four tables of the competition."""

    clinical: pd.DataFrame
    proteins: pd.DataFrame
    peptides: pd.DataFrame
    supplemental: pd.DataFrame


class ProteinEffects(NamedTuple):
    """How the logarithms of the proteins depend on what is hidden; only `ceiling.py` uses it."""

    names: list[str]
    loadings: np.ndarray  # of severity and of speed, one row each
    nuisance: np.ndarray  # of each nuisance factor, one row each
    center: np.ndarray  # mean severity and mean speed over all samples


class _Patient(NamedTuple):
    number: int
    severity: float  # at month 0
    speed: float  # increase of severity per year
    offsets: np.ndarray  # of each log score from what severity predicts


def generate(patients: int, supplemental: int, seed: int) -> Tables:
    """Generate tables of `patients` with proteins, and of `supplemental` others without."""
    return generate_with_effects(patients, supplemental, seed)[0]


def generate_with_effects(patients: int, supplemental: int, seed: int) -> tuple[Tables, ProteinEffects]:
    """Generate the tables, and return with them the effects that the proteins were drawn from."""
    rng = np.random.default_rng(seed)
    clinical, samples = [], []
    for number in range(patients):
        patient = _draw_patient(rng, number)
        for month, severity in _draw_visits(rng, patient):
            clinical.append(_draw_clinical_row(rng, patient, month, severity))
            if month in REGULAR_MONTHS and rng.random() < SAMPLE_SHARE:
                samples.append((number, month, severity, patient.speed))
    supplemental_rows = [
        _draw_clinical_row(rng, patient, month, patient.severity + patient.speed * month / 12)
        for patient in (_draw_patient(rng, patients + number) for number in range(supplemental))
        for month in SUPPLEMENTAL_MONTHS
        if month == 0 or rng.random() < 0.55
    ]
    proteins, peptides, effects = _draw_samples(
        rng, pd.DataFrame(samples, columns=["patient_id", "visit_month", "severity", "speed"])
    )
    tables = Tables(pd.DataFrame(clinical), proteins, peptides, pd.DataFrame(supplemental_rows))
    return tables, effects


def _draw_patient(rng: np.random.Generator, number: int) -> _Patient:
    severity = rng.normal(*HEALTHY) if rng.random() < HEALTHY_SHARE else rng.normal(*ILL)
    speed = max(0.0, SPEED_BASE + SPEED_SLOPE * severity + rng.normal(0, SPEED_SD))
    return _Patient(number, severity, speed, rng.normal(0, OFFSET_SDS))


def _draw_visits(rng: np.random.Generator, patient: _Patient) -> list[tuple[int, float]]:
    """Draw months of visits and the severity at each: sicker patients come more often and drop out sooner."""
    visits: list[tuple[int, float]] = []
    drift = 0.0
    for month in sorted(REGULAR_MONTHS + EXTRA_MONTHS):
        drift = DRIFT_MEMORY * drift + rng.normal(0, DRIFT_SD)
        severity = patient.severity + patient.speed * month / 12 + drift
        if rng.random() < visit_probability(month, severity):
            visits.append((month, severity))
        if rng.random() < dropout_probability(severity):
            break
    return visits


def visit_probability(month: int, severity: Any) -> Any:
    """Return the probability of a visit in this month, of one patient or of an array of them."""
    extra = _logistic(1.6 * severity - 0.2)
    if month in (0, 6):
        return 1.0 + 0 * extra if month == 0 else 0.15 + 0.80 * extra
    return 0.90 + 0 * extra if month in REGULAR_MONTHS else 0.75 * extra


def dropout_probability(severity: Any) -> Any:
    """Return the probability that a patient does not come again after this month."""
    return 0.02 + 0.05 * _logistic(2 * severity - 2)


def medication_probability(month: int, severity: Any) -> Any:
    """Return the probability that a patient takes medication."""
    return _logistic(1.5 * severity + month / 18 - 1.0)


def complication_probability(month: int, severity: Any) -> Any:
    """Return the probability that a patient who takes medication has complications."""
    return _logistic(1.3 * severity + month / 40 - 2.5)


def _draw_clinical_row(
    rng: np.random.Generator, patient: _Patient, month: int, severity: float
) -> dict[str, object]:
    """Draw a row of the clinical table."""
    medicated = rng.random() < medication_probability(month, severity)
    on = medicated and rng.random() < ACTING_SHARE
    row: dict[str, object] = {"visit_id": f"{patient.number}_{month}", "patient_id": patient.number}
    row["visit_month"] = month
    for index, (name, typical) in enumerate(TYPICAL_SCORES.items()):
        mean = typical * np.exp(LOG_SLOPES[name] * severity + patient.offsets[index])
        if name == "updrs_3" and on:
            mean *= ACTING_FACTOR
        score = rng.poisson(
            mean * rng.gamma(RATER_SHAPE, 1 / RATER_SHAPE)
        )  # variation between raters and days
        row[name] = float(min(score, MAX_SCORES[name]))
    has_complications = medicated and rng.random() < complication_probability(month, severity)
    row["updrs_4"] = (
        float(min(1 + rng.poisson(1.5 + 2 * rng.gamma(1.5)), MAX_SCORES["updrs_4"]))
        if has_complications
        else 0.0
    )
    if rng.random() < (MISSING_PART_4[0] if medicated else MISSING_PART_4[1]):
        row["updrs_4"] = np.nan
    row |= {name: np.nan for name in TYPICAL_SCORES if rng.random() < 0.01}
    known = medicated and rng.random() < 0.75
    row[MEDICATION] = ("On" if on else "Off") if known else ("Off" if rng.random() < 0.15 else None)
    return row


def _draw_samples(
    rng: np.random.Generator, samples: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, ProteinEffects]:
    """Draw the abundances of peptides in the samples; those of proteins are their sums."""
    count = len(samples)
    _, person = np.unique(samples["patient_id"], return_inverse=True)
    loadings = np.zeros((2, PROTEINS))
    loadings[0, :INFORMATIVE_PROTEINS] = rng.choice([-1, 1], INFORMATIVE_PROTEINS) * rng.uniform(
        0.06, 0.13, INFORMATIVE_PROTEINS
    )
    loadings[1, INFORMATIVE_PROTEINS - 3 : INFORMATIVE_PROTEINS] = rng.choice([-1, 1], 3) * rng.uniform(
        0.7, 1.2, 3
    )
    latents = samples[["severity", "speed"]].to_numpy()
    logs = rng.normal(10, 1.8, PROTEINS) + latents @ loadings
    logs += rng.normal(0, PERSON_SD, (person.max() + 1, PROTEINS))[person]
    factors = rng.normal(0, 1, (count, NUISANCE_FACTORS))
    nuisance = rng.normal(0, 0.15, (NUISANCE_FACTORS, PROTEINS))
    logs += factors @ nuisance
    logs += rng.normal(0, SAMPLE_SD, (count, PROTEINS))
    order = rng.permutation(PROTEINS)
    logs = logs[:, order]
    names = _draw_protein_names(rng, PROTEINS)
    effects = ProteinEffects(names, loadings[:, order], nuisance[:, order], latents.mean(axis=0))
    tables = []
    for index in range(PROTEINS):
        peptide_count = int(rng.integers(1, 5))
        shares = rng.dirichlet(np.full(peptide_count, 3.0)) * np.exp(
            rng.normal(0, PEPTIDE_SD, (count, peptide_count))
        )
        amounts = np.exp(logs[:, index, None]) * shares
        is_measured = rng.random((count, peptide_count)) > rng.uniform(0, 0.12) + 0.3 * (
            amounts < np.quantile(amounts, 0.05)
        )
        rows, columns = np.nonzero(is_measured)
        sequences = np.array(
            ["".join(rng.choice(AMINO_ACIDS, rng.integers(7, 22))) for _ in range(peptide_count)]
        )
        sample_keys = samples.iloc[rows][["visit_month", "patient_id"]].reset_index(drop=True)
        measured = amounts[rows, columns].round(3)
        tables.append(
            sample_keys.assign(UniProt=names[index], Peptide=sequences[columns], PeptideAbundance=measured)
        )
    peptides = pd.concat(tables, ignore_index=True)
    visit = peptides["patient_id"].astype(str) + "_" + peptides["visit_month"].astype(str)
    peptides.insert(0, "visit_id", visit)
    keys = ["visit_id", "visit_month", "patient_id", "UniProt"]
    proteins = peptides.groupby(keys)["PeptideAbundance"].sum().round(3).rename("NPX").reset_index()
    return proteins, peptides, effects


def _draw_protein_names(rng: np.random.Generator, count: int) -> list[str]:
    """Draw names in UniProt's format, such as P04217; they do not refer to real proteins."""
    numbers = rng.choice(90_000, count, replace=False) + 10_000
    return [f"{'OPQ'[int(number) % 3]}{number}" for number in numbers]


def _logistic(odds: Any) -> Any:
    return 1 / (1 + np.exp(-odds))
