"""Answers of a submission's program to the grader: arrays in the form of the driver, or what passes for them."""

import struct
from pathlib import Path

import numpy as np
from mutation import mutated

from mlagentbench.grading import driver

RAISES = (ValueError,)
WEIGHT, SHORT = 90, 500
SEEDS = [
    driver.pack_arrays([np.arange(6.0).reshape(2, 3)]),
    driver.pack_arrays([np.array(3), np.zeros((0, 4), "f4"), np.ones(5, bool)]),
    driver.pack_arrays([np.zeros((1,) * 16, "i1"), np.array([[1, 2]], "u2")]),
    b"",
]
SIZES = (0, 1, 2, 1 << 16, 1 << 31, (1 << 31) + 1, 1 << 32, 1 << 61, (1 << 64) - 1)
WORDS = [*(bytes([kind, dims]) for kind in (0, 1, 9, 11, 12) for dims in (0, 1, 2, 16, 17)), b"\0" * 8]
WORDS += [struct.pack("<Q", size) for size in SIZES]

make = mutated(SEEDS, WORDS)


def attempt(case: bytes, room: Path) -> None:
    arrays = driver.unpack_arrays(bytearray(case))
    assert sum(array.nbytes for array in arrays) <= len(case)
    assert driver.pack_arrays(arrays) == case
