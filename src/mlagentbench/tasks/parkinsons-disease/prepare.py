"""Hides what became of some patients: their records end at a visit, from which their scores must be forecast."""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
from generator import SCORES, Tables, generate

HIDDEN = {"open": 500, "paper": 100}  # patients of whom no score is given
PATIENTS, SUPPLEMENTAL = 800, 400  # of the open edition, in all
HORIZONS = (0, 6, 12, 24)  # months
VISIT = ["visit_id", "patient_id", "visit_month"]
FILES = (
    "train_clinical_data.csv",
    "train_proteins.csv",
    "train_peptides.csv",
    "supplemental_clinical_data.csv",
)


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write what is known of all patients to `public`, and the scores to be forecast to `private`."""
    tables = generate(PATIENTS, SUPPLEMENTAL, seed) if edition == "open" else _kaggle(raw)
    tables = _renamed(tables, seed)
    ends = _ends(tables.proteins, HIDDEN[edition], seed)
    for table, file in zip(tables, FILES, strict=True):
        _write(table[~table["patient_id"].isin(ends.index)], public / file)
    _write(_until(tables.proteins, ends), public / "test_proteins.csv")
    _write(_until(tables.peptides, ends), public / "test_peptides.csv")
    _write(_until(tables.clinical, ends)[VISIT], public / "test.csv")
    asked = _asked(tables.clinical, ends)
    ids, ratings = asked[["prediction_id"]], asked["rating"]
    _write(ids.assign(rating=0), public / "sample_submission.csv")
    _write(ids.assign(rating=ratings.fillna(0)), private / "answers.csv")
    _write(ids.assign(measured=ratings.notna().astype(int)), private / "measured.csv")


def _kaggle(raw: Path) -> Tables:
    """The competition's tables; amounts stay as they are written."""
    amounts = {"NPX": str, "PeptideAbundance": str}
    return Tables(*(pd.read_csv(raw / file, dtype=amounts) for file in FILES))


def _renamed(tables: Tables, seed: int) -> Tables:
    """The tables with new patient ids, which say nothing and by which the rows are ordered."""
    old = {int(each) for table in tables for each in table["patient_id"].unique()}
    new = dict(zip(_shuffled(old, f"{seed} names"), range(10_001, 10_001 + len(old)), strict=True))
    return Tables(*(_with_ids(table, new) for table in tables))


def _with_ids(table: pd.DataFrame, new: dict[int, int]) -> pd.DataFrame:
    table = table.assign(patient_id=table["patient_id"].map(new))
    table["visit_id"] = table["patient_id"].astype(str) + "_" + table["visit_month"].astype(str)
    keys = ["patient_id", "visit_month", *(name for name in ("UniProt", "Peptide") if name in table)]
    return table.sort_values(keys, kind="stable", ignore_index=True)


def _ends(proteins: pd.DataFrame, count: int, seed: int) -> "pd.Series[int]":
    """For each hidden patient the month of the last visit that is shown, one of those with a sample."""
    samples = proteins.groupby("patient_id")["visit_month"].unique()
    hidden = sorted(_shuffled(samples.index, f"{seed} hidden")[:count])
    months = [_shuffled(samples[patient], f"{seed} end {patient}")[0] for patient in hidden]
    return pd.Series(months, index=hidden)


def _until(table: pd.DataFrame, ends: "pd.Series[int]") -> pd.DataFrame:
    """What is known of the hidden patients at the last visit that is shown."""
    return table[table["visit_month"] <= table["patient_id"].map(ends)]


def _asked(clinical: pd.DataFrame, ends: "pd.Series[int]") -> pd.DataFrame:
    """All that must be forecast, whether it came to a measurement (`rating`) or not."""
    scores = clinical.groupby(["patient_id", "visit_month"])[list(SCORES)].first()
    rows = []
    for patient, month in ends.items():
        for ahead in HORIZONS:
            visit = (patient, month + ahead)
            for score in SCORES:
                name = f"{patient}_{month}_{score}_plus_{ahead}_months"
                rows.append((name, scores.at[visit, score] if visit in scores.index else np.nan))
    return pd.DataFrame(rows, columns=["prediction_id", "rating"])


def _shuffled(numbers: Iterable[int], salt: str) -> list[int]:
    """The numbers in an order that only the salt decides: generators may change between versions of numpy."""
    return sorted(
        (int(each) for each in numbers), key=lambda each: sha256(f"{salt} {each}".encode()).digest()
    )


def _write(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.12g", lineterminator="\n")
