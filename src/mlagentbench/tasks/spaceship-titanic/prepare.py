"""Generates or splits the passengers of the ship into a training set and a hidden test set."""

from hashlib import sha256
from pathlib import Path

import pandas as pd
from generator import generate_passengers

TRAIN_ROWS, TEST_ROWS = 6000, 6000  # of the open edition
ID_COLUMN = "PassengerId"
TARGET_COLUMN = "Transported"


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.csv and test.csv to `public`, and the hidden labels to `private`."""
    if edition == "open":
        train, test = (
            table.drop(columns="probability") for table in generate_passengers(seed, [TRAIN_ROWS, TEST_ROWS])
        )
    else:
        train, test = _split_kaggle(raw / "train.csv", seed)
    _write_csv(train, public / "train.csv")
    _write_csv(test.drop(columns=TARGET_COLUMN), public / "test.csv")
    _write_csv(test[[ID_COLUMN, TARGET_COLUMN]], private / "answers.csv")


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, lineterminator="\n")


def _split_kaggle(path: Path, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split the competition's passengers into halves by group, with new random group numbers."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)  # keeps every cell exactly as written
    table[TARGET_COLUMN] = table[TARGET_COLUMN].map({"True": 1, "False": 0}).astype(int)
    old_groups = table[ID_COLUMN].str.partition("_")[0]

    def hash_key(name: str) -> bytes:  # random generators may change between versions of numpy
        return sha256(f"{seed} {name}".encode()).digest()

    groups = sorted(set(old_groups), key=hash_key)
    numbers = sorted(range(1, 10_000), key=lambda number: hash_key(f"number {number}"))[: len(groups)]
    new_groups = old_groups.map(dict(zip(groups, numbers, strict=True)))
    table = table.iloc[
        sorted(range(len(table)), key=lambda row: (new_groups[row], hash_key(f"passenger {row}")))
    ]
    new_groups = new_groups[table.index]
    member = table.groupby(new_groups).cumcount() + 1
    table[ID_COLUMN] = [f"{a:04d}_{b:02d}" for a, b in zip(new_groups, member, strict=True)]
    passengers_so_far = old_groups.value_counts()[groups].cumsum()
    in_train = old_groups[table.index].isin(passengers_so_far.index[passengers_so_far <= len(table) // 2])
    return table[in_train], table[~in_train]
