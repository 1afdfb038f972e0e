"""Reads safetensors files: the length of a JSON header, the header, and the raw numbers."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def iter_tensors(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield every tensor of a file with its name; BF16 tensors are converted to float32."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    header.pop("__metadata__", None)
    data = np.memmap(path, np.uint8, "r", offset=8 + size)
    for name, entry in header.items():
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"{path.name}: {name} has the unsupported type {entry['dtype']}")
        start, end = entry["data_offsets"]
        numbers: Array = np.frombuffer(data[start:end].tobytes(), DTYPES[entry["dtype"]]).reshape(
            entry["shape"]
        )
        if entry["dtype"] == "BF16":  # the upper half of a float32
            numbers = (numbers.astype("<u4") << 16).view("<f4")
        yield name, numbers
