"""The access ledger of a step, damaged."""

from pathlib import Path

from mutation import mutated

from mlagentbench.errors import Fault
from mlagentbench.sandbox.access_log.records import (
    ACCESS_FOLDER,
    access_file,
    read_access,
    remove_accesses_after,
    unexpected_accesses,
)

RAISES = (Fault,)
WEIGHT, SHORT = 20, 150
RECORDED = (Path(__file__).parents[2] / "formats" / "1" / ACCESS_FOLDER / "step-0005.jsonl").read_bytes()
SEEDS = [
    RECORDED,
    *RECORDED.splitlines(keepends=True)[:3],
    b'{"path":"unix:/run/x","mode":"connect","count":1}\n',
]
WORDS = [
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

make = mutated(SEEDS, WORDS)


def attempt(case: bytes, room: Path) -> None:
    path = access_file(room, 3)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(case)
    found = read_access(room, 3)
    assert set(unexpected_accesses(found)) <= set(found)
    remove_accesses_after(room, 2)
    assert read_access(room, 3) == ()
