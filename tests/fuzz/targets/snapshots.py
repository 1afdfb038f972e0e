"""Manifests of runs from unknown sources: read, compared and restored, and nothing outside changes."""

import json
import shutil
from pathlib import Path
from random import Random

from mutation import dump_json, mutate_bytes, mutate_json

from mlagentbench.errors import Fault
from mlagentbench.workspace.store import Store

EXPECTED_ERRORS = (Fault,)
CASES_PER_1000, SHORT_CASES = 30, 120
RECORDED = Path(__file__).parents[2] / "formats" / "1" / "snapshots"
LINES = (RECORDED / "manifest.jsonl").read_bytes().splitlines(keepends=True)
LINK = {
    "step": 9,
    "changed": {"a": {"kind": "link", "target": "/etc"}, "b": {"kind": "folder", "mode": 493}},
    "removed": [],
}
PARSED = [json.loads(line) for line in LINES] + [LINK]
TOKENS = [
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
REGRESSION_CASES = [
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
mutate, mutate_object = mutate_bytes([b"".join(LINES), *LINES], TOKENS), mutate_json(PARSED)


def make_case(random: Random) -> bytes:
    if random.random() < 0.3:
        return mutate(random)
    lines = [dump_json(mutate_object(random)) + b"\n" for _ in range(random.randrange(1, 4))]
    return b"".join([LINES[0], *lines] if random.random() < 0.5 else lines)


def run_case(case: bytes, folder: Path) -> None:
    snapshots, restored, outside = folder / "snapshots", folder / "restored", folder / "outside"
    if not snapshots.exists():
        shutil.copytree(RECORDED, snapshots)
        outside.mkdir()
    (snapshots / "manifest.jsonl").write_bytes(case)
    store = Store(snapshots)
    last_step = max(store.steps_with_changes(), default=0)
    try:
        assert store.tree_hash(last_step)
        store.find_problems()
        assert isinstance(store.diff(0, last_step), str)
        list(store.iter_step_diffs())
        store.restore(last_step, restored)
    finally:
        shutil.rmtree(restored, ignore_errors=True)
        assert not any(outside.iterdir())
