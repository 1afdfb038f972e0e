"""Replies of a submitted program to the grader: arrays in the format of the driver, or nearly so."""

import struct
from pathlib import Path

import numpy as np
from mutation import mutate_bytes

from mlagentbench.sandbox.programs import submission_runner

EXPECTED_ERRORS = (ValueError,)
CASES_PER_1000, SHORT_CASES = 90, 500
SEEDS = [
    submission_runner.pack_arrays([np.arange(6.0).reshape(2, 3)]),
    submission_runner.pack_arrays([np.array(3), np.zeros((0, 4), "f4"), np.ones(5, bool)]),
    submission_runner.pack_arrays([np.zeros((1,) * 16, "i1"), np.array([[1, 2]], "u2")]),
    b"",
]
SIZES = (0, 1, 2, 1 << 16, 1 << 31, (1 << 31) + 1, 1 << 32, 1 << 61, (1 << 64) - 1)
TOKENS = [*(bytes([dtype, dims]) for dtype in (0, 1, 9, 11, 12) for dims in (0, 1, 2, 16, 17)), b"\0" * 8]
TOKENS += [struct.pack("<Q", size) for size in SIZES]

make_case = mutate_bytes(SEEDS, TOKENS)


def run_case(case: bytes, folder: Path) -> None:
    arrays = submission_runner.unpack_arrays(bytearray(case))
    assert sum(array.nbytes for array in arrays) <= len(case)
    assert submission_runner.pack_arrays(arrays) == case
