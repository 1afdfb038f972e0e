"""Reads safetensors files: the length of a JSON header, the header, and the numbers as they lie in memory."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def tensors(path: Path) -> Iterator[tuple[str, Array]]:
    """Every tensor of a file with its name, one after another; those in BF16 come as float32."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    header.pop("__metadata__", None)
    data = np.memmap(path, np.uint8, "r", offset=8 + size)
    for name, about in header.items():
        if about["dtype"] not in TYPES:
            raise ValueError(f"{path.name}: {name} is of type {about['dtype']}, which is not known")
        begin, end = about["data_offsets"]
        numbers: Array = np.frombuffer(data[begin:end].tobytes(), TYPES[about["dtype"]]).reshape(
            about["shape"]
        )
        if about["dtype"] == "BF16":  # the upper half of a float32
            numbers = (numbers.astype("<u4") << 16).view("<f4")
        yield name, numbers
