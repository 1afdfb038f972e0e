"""The access ledger of a step, damaged."""

from pathlib import Path

from mutation import mutated

from mlagentbench.errors import Fault
from mlagentbench.sandbox.access.record import FOLDER, file_of, foreign, forget_after, read_access

RAISES = (Fault,)
WEIGHT, SHORT = 20, 150
RECORDED = (Path(__file__).parents[2] / "formats" / "1" / FOLDER / "step-0005.jsonl").read_bytes()
SEEDS = [RECORDED, *RECORDED.splitlines(keepends=True)[:3], b'{"path":"unix:/run/x","mode":"connect","count":1}\n']
WORDS = [b'"path":"', b'"mode":"send"', b"unix:", b"../..", b"/proc/1/root", b".so.6", b"\n", b"\x85", b"\x0c", b"{}"]

make = mutated(SEEDS, WORDS)


def attempt(case: bytes, room: Path) -> None:
    path = file_of(room, 3)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(case)
    found = read_access(room, 3)
    assert set(foreign(found)) <= set(found)
    forget_after(room, 2)
    assert read_access(room, 3) == ()
