"""Manifests of somebody else's run: every state told, compared and laid out, and nothing outside of it."""

import json
import shutil
from pathlib import Path
from random import Random

from mutation import dumped, grafted, mutated

from mlagentbench.errors import Fault
from mlagentbench.workspace.store import Store

RAISES = (Fault,)
WEIGHT, SHORT = 30, 120
RECORDED = Path(__file__).parents[2] / "formats" / "1" / "snapshots"
LINES = (RECORDED / "manifest.jsonl").read_bytes().splitlines(keepends=True)
LINK = {
    "step": 9,
    "changed": {"a": {"kind": "link", "target": "/etc"}, "b": {"kind": "folder", "mode": 493}},
    "removed": [],
}
PARSED = [json.loads(line) for line in LINES] + [LINK]
WORDS = [
    b'"size":',
    b'"mode":',
    b'"kind":"link"',
    b'"target":"/"',
    b'"../x"',
    b'"a/b"',
    b"\n",
    b"{}",
    b"[" * 5000,
]
FOUND = [
    *(b'{"step":%s,"changed":{},"removed":[]}\n\n' % step for step in (b"Infinity", b"[" * 100_000)),
    *(
        b'{"step":1,"changed":{"a":{"kind":"link","mode":0,%s}},"removed":[]}\n' % fields
        for fields in (
            b'"target":["a"]',
            b'"target":"\\ud800"',
        )
    ),
    b'{"step":1,"changed":{"\\ud800":{"kind":"folder"}},"removed":[]}\n',
]
damaged, exchanged = mutated([b"".join(LINES), *LINES], WORDS), grafted(PARSED)


def make(random: Random) -> bytes:
    if random.random() < 0.3:
        return damaged(random)
    lines = [dumped(exchanged(random)) + b"\n" for _ in range(random.randrange(1, 4))]
    return b"".join([LINES[0], *lines] if random.random() < 0.5 else lines)


def attempt(case: bytes, room: Path) -> None:
    folder, laid, outside = room / "snapshots", room / "laid", room / "outside"
    if not folder.exists():
        shutil.copytree(RECORDED, folder)
        outside.mkdir()
    (folder / "manifest.jsonl").write_bytes(case)
    store = Store(folder)
    last = max(store.steps_with_changes(), default=0)
    try:
        assert store.tree_hash(last)
        store.find_problems()
        assert isinstance(store.diff(0, last), str)
        list(store.iter_step_diffs())
        store.restore(last, laid)
    finally:
        shutil.rmtree(laid, ignore_errors=True)
        assert not any(outside.iterdir())
