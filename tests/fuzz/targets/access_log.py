"""A damaged access log of a step."""

from pathlib import Path

from mutation import mutate_bytes

from mlagentbench.errors import Fault
from mlagentbench.sandbox.access_log.records import (
    ACCESS_FOLDER,
    access_file,
    read_access,
    remove_accesses_after,
    unexpected_accesses,
)

EXPECTED_ERRORS = (Fault,)
CASES_PER_1000, SHORT_CASES = 20, 150
RECORDED = (Path(__file__).parents[2] / "formats" / "1" / ACCESS_FOLDER / "step-0005.jsonl").read_bytes()
SEEDS = [
    RECORDED,
    *RECORDED.splitlines(keepends=True)[:3],
    b'{"path":"unix:/run/x","mode":"connect","count":1}\n',
]
TOKENS = [
    b'"path":"',
    b'"mode":"send"',
    b"unix:",
    b"../..",
    b"/proc/1/root",
    b".so.6",
    b"\n",
    b"\x85",
    b"\x0c",
    b"{}",
]

make_case = mutate_bytes(SEEDS, TOKENS)


def run_case(case: bytes, folder: Path) -> None:
    path = access_file(folder, 3)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(case)
    accesses = read_access(folder, 3)
    assert set(unexpected_accesses(accesses)) <= set(accesses)
    remove_accesses_after(folder, 2)
    assert read_access(folder, 3) == ()
