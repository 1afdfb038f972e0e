"""Reads a GGUF file of a language model: its metadata and its dequantized weights."""

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float32]]

NUMBER_FORMATS = {
    0: "B",
    1: "b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
STRING_TYPE, ARRAY_TYPE = 8, 9
DEFAULT_ALIGNMENT = 32  # of the weights, unless the file specifies another


class BlockFormat(NamedTuple):
    """How numbers are packed: numbers per block, bytes per block, and the function that unpacks blocks."""

    numbers: int
    size: int
    unpack: Callable[[Bytes], Floats]


class Gguf:
    """A whole file in memory: `metadata` holds its settings, `tensor(name)` returns one of its weights."""

    def __init__(self, data: bytes) -> None:
        self._data, self._offset = data, 0
        if data[:4] != b"GGUF":
            raise ValueError("not a GGUF file")
        self._offset = 4
        version, tensor_count, metadata_count = (
            self._read_number("<I"),
            self._read_number("<Q"),
            self._read_number("<Q"),
        )
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version} is not supported")
        self.metadata: dict[str, Any] = {
            self._read_string(): self._read_value(self._read_number("<I")) for _ in range(metadata_count)
        }
        infos = [self._read_tensor_info() for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        start = -(-self._offset // alignment) * alignment
        self._tensors = {name: (shape, type_id, start + offset) for name, shape, type_id, offset in infos}

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def tensor(self, name: str) -> Floats:
        """Return one of the weights, with the fastest-varying dimension last."""
        shape, type_id, start = self._tensors[name]
        if type_id not in BLOCK_FORMATS:
            raise ValueError(f"{name} has the unsupported type {type_id}")
        block_format = BLOCK_FORMATS[type_id]
        count = int(np.prod(shape)) // block_format.numbers
        blocks = np.frombuffer(self._data, np.uint8, count * block_format.size, start)
        return block_format.unpack(blocks.reshape(count, block_format.size)).reshape(shape)

    def _read_number(self, code: str) -> Any:
        (value,) = struct.unpack_from(code, self._data, self._offset)
        self._offset += struct.calcsize(code)
        return value

    def _read_string(self) -> str:
        size = self._read_number("<Q")
        self._offset += size
        return self._data[self._offset - size : self._offset].decode("utf-8")

    def _read_value(self, type_id: int) -> Any:
        if type_id == STRING_TYPE:
            return self._read_string()
        if type_id == ARRAY_TYPE:
            element_type, count = self._read_number("<I"), self._read_number("<Q")
            return [self._read_value(element_type) for _ in range(count)]
        return self._read_number(NUMBER_FORMATS[type_id])

    def _read_tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._read_string()
        dimensions = [self._read_number("<Q") for _ in range(self._read_number("<I"))]
        return name, tuple(reversed(dimensions)), self._read_number("<I"), self._read_number("<Q")


def _read_halves(blocks: Bytes, offset: int) -> Floats:
    """Return the half-precision number at an offset of each block, as a column."""
    return np.ascontiguousarray(blocks[:, offset : offset + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """Unpack 4-bit numbers: the low halves of all bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _unpack_q4_1(blocks: Bytes) -> Floats:
    """Unpack blocks of a scale, a minimum, and 32 numbers of four bits."""
    return _nibbles(blocks[:, 4:]) * _read_halves(blocks, 0) + _read_halves(blocks, 2)


def _unpack_q8_0(blocks: Bytes) -> Floats:
    """Unpack blocks of a scale and 32 numbers of eight bits."""
    return blocks[:, 2:].view(np.int8) * _read_halves(blocks, 0)


BLOCK_FORMATS = {
    0: BlockFormat(1, 4, lambda blocks: blocks.view("<f4").astype(np.float32)),
    1: BlockFormat(1, 2, lambda blocks: blocks.view("<f2").astype(np.float32)),
    3: BlockFormat(32, 20, _unpack_q4_1),
    8: BlockFormat(32, 34, _unpack_q8_0),
}
