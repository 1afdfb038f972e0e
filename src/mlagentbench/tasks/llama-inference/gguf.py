"""Reads a GGUF file of a language model: what it says about itself, and its weights, packed ones unpacked."""

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float32]]

NUMBERS = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
ALIGNMENT = 32  # of the weights, where the file names no other


class Packing(NamedTuple):
    """How numbers are packed: so many to a block of so many bytes, and how a stack of blocks becomes numbers."""

    numbers: int
    size: int
    unpack: Callable[[Bytes], Floats]


class Gguf:
    """A whole file in memory: `about` holds its settings, and `tensor(name)` one of its weights."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        if data[:4] != b"GGUF":
            raise ValueError("not a GGUF file")
        self._at = 4
        version, tensors, settings = self._next("<I"), self._next("<Q"), self._next("<Q")
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version} is not known")
        self.about: dict[str, Any] = {self._string(): self._value(self._next("<I")) for _ in range(settings)}
        places = [self._place() for _ in range(tensors)]
        alignment = self.about.get("general.alignment", ALIGNMENT)
        start = -(-self._at // alignment) * alignment
        self._places = {name: (shape, kind, start + offset) for name, shape, kind, offset in places}

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def tensor(self, name: str) -> Floats:
        """One of the weights, with the dimension that varies fastest last."""
        shape, kind, start = self._places[name]
        if kind not in PACKINGS:
            raise ValueError(f"{name} is packed in a way that is not known (type {kind})")
        packing = PACKINGS[kind]
        count = int(np.prod(shape)) // packing.numbers
        blocks = np.frombuffer(self._data, np.uint8, count * packing.size, start)
        return packing.unpack(blocks.reshape(count, packing.size)).reshape(shape)

    def _next(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def _string(self) -> str:
        size = self._next("<Q")
        self._at += size
        return self._data[self._at - size : self._at].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            inner, count = self._next("<I"), self._next("<Q")
            return [self._value(inner) for _ in range(count)]
        return self._next(NUMBERS[kind])

    def _place(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        sides = [self._next("<Q") for _ in range(self._next("<I"))]
        return name, tuple(reversed(sides)), self._next("<I"), self._next("<Q")


def _halves(blocks: Bytes, at: int) -> Floats:
    """The half-precision number at one place of each block, as a column."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """Four bits a number: the low halves of all bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _q4_1(blocks: Bytes) -> Floats:
    """A scale, a minimum, and 32 numbers of four bits."""
    return _nibbles(blocks[:, 4:]) * _halves(blocks, 0) + _halves(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    """A scale, and 32 numbers of eight bits."""
    return blocks[:, 2:].view(np.int8) * _halves(blocks, 0)


PACKINGS = {
    0: Packing(1, 4, lambda blocks: blocks.view("<f4").astype(np.float32)),
    1: Packing(1, 2, lambda blocks: blocks.view("<f2").astype(np.float32)),
    3: Packing(32, 20, _q4_1),
    8: Packing(32, 34, _q8_0),
}
