"""Invents patients with the tables of the AMP-PD study: a latent disease that grows, and what visits show of it."""

from typing import NamedTuple

import numpy as np
import pandas as pd

REGULAR = (0, 6, 12, 24, 36, 48, 60, 72, 84)
EXTRA = (3, 9, 18, 30, 42, 54, 66, 78)  # mostly for those who are worse off
SUPPLEMENTAL = (0, 6, 12, 24, 36)
SCORES = ("updrs_1", "updrs_2", "updrs_3", "updrs_4")
MEDICATION = "upd23b_clinical_state_on_medication"
TYPICAL = {"updrs_1": 5.5, "updrs_2": 5.0, "updrs_3": 15.0}  # at a severity of 0
STEEPNESS = {"updrs_1": 0.50, "updrs_2": 0.75, "updrs_3": 0.65}  # by which logarithms grow with severity
HIGHEST = {"updrs_1": 52, "updrs_2": 52, "updrs_3": 132, "updrs_4": 24}
PROTEINS = 60
TELLING = 9  # proteins that have to do with the disease; the last three of them with its speed
NUISANCES = 3  # what shifts many proteins of one sample together: handling, blood, dilution
LETTERS = np.array(list("ACDEFGHIKLMNPQRSTVWY"))


class Tables(NamedTuple):
    """The four files of the competition."""

    clinical: pd.DataFrame
    proteins: pd.DataFrame
    peptides: pd.DataFrame
    supplemental: pd.DataFrame


class _Patient(NamedTuple):
    number: int
    severity: float  # at month 0
    speed: float  # of severity, a year
    temper: np.ndarray  # by how much each score lies above or below what severity says


def generate(patients: int, supplemental: int, seed: int) -> Tables:
    """Tables of `patients` with proteins, and of `supplemental` others without."""
    rng = np.random.default_rng(seed)
    clinical, samples = [], []
    for number in range(patients):
        patient = _draw(rng, number)
        for month, severity in _visits(rng, patient):
            clinical.append(_examine(rng, patient, month, severity))
            if month in REGULAR and rng.random() < 0.92:
                samples.append((number, month, severity, patient.speed))
    others = [
        _examine(rng, patient, month, patient.severity + patient.speed * month / 12)
        for patient in (_draw(rng, patients + number) for number in range(supplemental))
        for month in SUPPLEMENTAL
        if month == 0 or rng.random() < 0.55
    ]
    proteins, peptides = _assay(
        rng, pd.DataFrame(samples, columns=["patient_id", "visit_month", "severity", "speed"])
    )
    return Tables(pd.DataFrame(clinical), proteins, peptides, pd.DataFrame(others))


def _draw(rng: np.random.Generator, number: int) -> _Patient:
    severity = rng.normal(-1.8, 0.5) if rng.random() < 0.2 else rng.normal(0.2, 0.75)
    speed = max(0.0, 0.14 + 0.06 * severity + rng.normal(0, 0.10))
    return _Patient(number, severity, speed, rng.normal(0, [0.35, 0.30, 0.25]))


def _visits(rng: np.random.Generator, patient: _Patient) -> list[tuple[int, float]]:
    """Months of visits, and the severity in each: the worse off come more often, and stay away sooner."""
    found: list[tuple[int, float]] = []
    drift = 0.0
    for month in sorted(REGULAR + EXTRA):
        drift = 0.8 * drift + rng.normal(0, 0.12)
        severity = patient.severity + patient.speed * month / 12 + drift
        eager = _chance(1.6 * severity - 0.2)
        comes = {0: 1.0, 6: 0.15 + 0.80 * eager}.get(month, 0.90 if month in REGULAR else 0.75 * eager)
        if rng.random() < comes:
            found.append((month, severity))
        if rng.random() < 0.02 + 0.05 * _chance(2 * severity - 2):
            break
    return found


def _examine(rng: np.random.Generator, patient: _Patient, month: int, severity: float) -> dict[str, object]:
    """A row of the clinical table."""
    medicated = rng.random() < _chance(1.5 * severity + month / 18 - 1.0)
    on = medicated and rng.random() < 0.75
    row: dict[str, object] = {"visit_id": f"{patient.number}_{month}", "patient_id": patient.number}
    row["visit_month"] = month
    for place, (name, typical) in enumerate(TYPICAL.items()):
        mean = typical * np.exp(STEEPNESS[name] * severity + patient.temper[place])
        if name == "updrs_3" and on:
            mean *= 0.72
        score = rng.poisson(mean * rng.gamma(12, 1 / 12))  # raters differ, and days do
        row[name] = float(min(score, HIGHEST[name]))
    bursts = medicated and rng.random() < _chance(1.3 * severity + month / 40 - 2.5)
    row["updrs_4"] = (
        float(min(1 + rng.poisson(1.5 + 2 * rng.gamma(1.5)), HIGHEST["updrs_4"])) if bursts else 0.0
    )
    if rng.random() < (0.20 if medicated else 0.55):
        row["updrs_4"] = np.nan
    row |= {name: np.nan for name in TYPICAL if rng.random() < 0.01}
    known = medicated and rng.random() < 0.75
    row[MEDICATION] = ("On" if on else "Off") if known else ("Off" if rng.random() < 0.15 else None)
    return row


def _assay(rng: np.random.Generator, samples: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What a mass spectrometer makes of the samples: abundances of peptides, and of proteins as their sums."""
    count = len(samples)
    _, person = np.unique(samples["patient_id"], return_inverse=True)
    share = np.zeros((2, PROTEINS))
    share[0, :TELLING] = rng.choice([-1, 1], TELLING) * rng.uniform(0.06, 0.13, TELLING)
    share[1, TELLING - 3 : TELLING] = rng.choice([-1, 1], 3) * rng.uniform(0.7, 1.2, 3)
    logs = rng.normal(10, 1.8, PROTEINS) + samples[["severity", "speed"]].to_numpy() @ share
    logs += rng.normal(0, 0.25, (person.max() + 1, PROTEINS))[person]
    logs += rng.normal(0, 1, (count, NUISANCES)) @ rng.normal(0, 0.15, (NUISANCES, PROTEINS))
    logs += rng.normal(0, 0.15, (count, PROTEINS))
    logs = logs[:, rng.permutation(PROTEINS)]
    names = _names(rng, PROTEINS)
    found = []
    for place in range(PROTEINS):
        pieces = int(rng.integers(1, 5))
        parts = rng.dirichlet(np.full(pieces, 3.0)) * np.exp(rng.normal(0, 0.12, (count, pieces)))
        amounts = np.exp(logs[:, place, None]) * parts
        seen = rng.random((count, pieces)) > rng.uniform(0, 0.12) + 0.3 * (
            amounts < np.quantile(amounts, 0.05)
        )
        rows, columns = np.nonzero(seen)
        spelled = np.array(["".join(rng.choice(LETTERS, rng.integers(7, 22))) for _ in range(pieces)])
        taken = samples.iloc[rows][["visit_month", "patient_id"]].reset_index(drop=True)
        measured = amounts[rows, columns].round(3)
        found.append(taken.assign(UniProt=names[place], Peptide=spelled[columns], PeptideAbundance=measured))
    peptides = pd.concat(found, ignore_index=True)
    visit = peptides["patient_id"].astype(str) + "_" + peptides["visit_month"].astype(str)
    peptides.insert(0, "visit_id", visit)
    keys = ["visit_id", "visit_month", "patient_id", "UniProt"]
    proteins = peptides.groupby(keys)["PeptideAbundance"].sum().round(3).rename("NPX").reset_index()
    return proteins, peptides


def _names(rng: np.random.Generator, count: int) -> list[str]:
    """Names in the form of UniProt's, such as P04217; none stands for the protein that bears it there."""
    numbers = rng.choice(90_000, count, replace=False) + 10_000
    return [f"{'OPQ'[int(number) % 3]}{number}" for number in numbers]


def _chance(odds: float) -> float:
    return float(1 / (1 + np.exp(-odds)))
