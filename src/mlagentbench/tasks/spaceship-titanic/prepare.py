"""Makes the passengers of the ship: some whose fate is known, to learn from, and others to be graded on."""

from hashlib import sha256
from pathlib import Path

import pandas as pd
from generator import passengers

LEARN, HIDDEN = 6000, 6000  # passengers of the open edition
IDENTIFIER = "PassengerId"
TARGET = "Transported"


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.csv and test.csv to `public`, and the hidden fates to `private`."""
    if edition == "open":
        train, test = (table.drop(columns="chance") for table in passengers(seed, [LEARN, HIDDEN]))
    else:
        train, test = _halves(raw / "train.csv", seed)
    _write(train, public / "train.csv")
    _write(test.drop(columns=TARGET), public / "test.csv")
    _write(test[[IDENTIFIER, TARGET]], private / "answers.csv")


def _write(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, lineterminator="\n")


def _halves(path: Path, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The competition's passengers in two halves, all of a group in one of them, with new random numbers."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)  # every cell stays as it is written
    table[TARGET] = table[TARGET].map({"True": 1, "False": 0}).astype(int)
    old = table[IDENTIFIER].str.partition("_")[0]

    def rank(name: str) -> bytes:  # hashes, because random generators may change between versions of numpy
        return sha256(f"{seed} {name}".encode()).digest()

    groups = sorted(set(old), key=rank)
    numbers = sorted(range(1, 10_000), key=lambda number: rank(f"number {number}"))[: len(groups)]
    new = old.map(dict(zip(groups, numbers, strict=True)))
    table = table.iloc[sorted(range(len(table)), key=lambda row: (new[row], rank(f"passenger {row}")))]
    new = new[table.index]
    member = table.groupby(new).cumcount() + 1
    table[IDENTIFIER] = [f"{a:04d}_{b:02d}" for a, b in zip(new, member, strict=True)]
    upto = old.value_counts()[groups].cumsum()
    learn = old[table.index].isin(upto.index[upto <= len(table) // 2])
    return table[learn], table[~learn]
