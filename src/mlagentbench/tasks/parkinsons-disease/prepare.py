"""Splits patients into a training set and a test set, whose records end at the visit to forecast from."""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
from generator import SCORES, Tables, generate

TEST_PATIENTS = {"open": 500, "paper": 100}  # patients without public scores
PATIENTS, SUPPLEMENTAL = 800, 400  # of the open edition, in total
HORIZONS = (0, 6, 12, 24)  # months
VISIT_COLUMNS = ["visit_id", "patient_id", "visit_month"]
FILES = (
    "train_clinical_data.csv",
    "train_proteins.csv",
    "train_peptides.csv",
    "supplemental_clinical_data.csv",
)


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the public records of all patients to `public`, and the scores to forecast to `private`."""
    tables = generate(PATIENTS, SUPPLEMENTAL, seed) if edition == "open" else _read_kaggle(raw)
    tables = _renumber_patients(tables, seed)
    cutoffs = _draw_cutoffs(tables.proteins, TEST_PATIENTS[edition], seed)
    for table, file in zip(tables, FILES, strict=True):
        _write_csv(table[~table["patient_id"].isin(cutoffs.index)], public / file)
    _write_csv(_before_cutoff(tables.proteins, cutoffs), public / "test_proteins.csv")
    _write_csv(_before_cutoff(tables.peptides, cutoffs), public / "test_peptides.csv")
    _write_csv(_before_cutoff(tables.clinical, cutoffs)[VISIT_COLUMNS], public / "test.csv")
    targets = _list_targets(tables.clinical, cutoffs)
    ids, ratings = targets[["prediction_id"]], targets["rating"]
    _write_csv(ids.assign(rating=0), public / "sample_submission.csv")
    _write_csv(ids.assign(rating=ratings.fillna(0)), private / "answers.csv")
    _write_csv(ids.assign(measured=ratings.notna().astype(int)), private / "measured.csv")


def _read_kaggle(raw: Path) -> Tables:
    """Read the competition's tables; amounts are kept exactly as written."""
    amounts = {"NPX": str, "PeptideAbundance": str}
    return Tables(*(pd.read_csv(raw / file, dtype=amounts) for file in FILES))


def _renumber_patients(tables: Tables, seed: int) -> Tables:
    """Give patients new ids that carry no information, and order the rows by them."""
    old_ids = {int(patient) for table in tables for patient in table["patient_id"].unique()}
    new_ids = dict(
        zip(_hash_order(old_ids, f"{seed} names"), range(10_001, 10_001 + len(old_ids)), strict=True)
    )
    return Tables(*(_replace_ids(table, new_ids) for table in tables))


def _replace_ids(table: pd.DataFrame, new_ids: dict[int, int]) -> pd.DataFrame:
    table = table.assign(patient_id=table["patient_id"].map(new_ids))
    table["visit_id"] = table["patient_id"].astype(str) + "_" + table["visit_month"].astype(str)
    keys = ["patient_id", "visit_month", *(name for name in ("UniProt", "Peptide") if name in table)]
    return table.sort_values(keys, kind="stable", ignore_index=True)


def _draw_cutoffs(proteins: pd.DataFrame, count: int, seed: int) -> "pd.Series[int]":
    """Draw the test patients, and for each the month of the last public visit, one of those with a sample."""
    samples = proteins.groupby("patient_id")["visit_month"].unique()
    hidden = sorted(_hash_order(samples.index, f"{seed} hidden")[:count])
    months = [_hash_order(samples[patient], f"{seed} end {patient}")[0] for patient in hidden]
    return pd.Series(months, index=hidden)


def _before_cutoff(table: pd.DataFrame, cutoffs: "pd.Series[int]") -> pd.DataFrame:
    """Return the rows of the test patients up to their last public visit."""
    return table[table["visit_month"] <= table["patient_id"].map(cutoffs)]


def _list_targets(clinical: pd.DataFrame, cutoffs: "pd.Series[int]") -> pd.DataFrame:
    """List all forecasts that are required, with the `rating` if the score was measured."""
    scores = clinical.groupby(["patient_id", "visit_month"])[list(SCORES)].first()
    rows = []
    for patient, month in cutoffs.items():
        for months_ahead in HORIZONS:
            visit = (patient, month + months_ahead)
            for score in SCORES:
                name = f"{patient}_{month}_{score}_plus_{months_ahead}_months"
                rows.append((name, scores.at[visit, score] if visit in scores.index else np.nan))
    return pd.DataFrame(rows, columns=["prediction_id", "rating"])


def _hash_order(numbers: Iterable[int], salt: str) -> list[int]:
    """Order numbers by hashes with a salt: random generators may change between versions of numpy."""
    return sorted(
        (int(number) for number in numbers), key=lambda number: sha256(f"{salt} {number}".encode()).digest()
    )


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.12g", lineterminator="\n")
