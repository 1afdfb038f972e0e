"""A run folder of which a file was damaged: read, and made ready to go on."""

import shutil
from pathlib import Path
from random import Random

from mutation import mutated

from mlagentbench.errors import Fault, UsageError
from mlagentbench.runner.folder import RunFolder

RAISES = (Fault, UsageError)
WEIGHT, SHORT = 30, 150
RECORDED = Path(__file__).parents[2] / "formats" / "1"
FILES = ("run.json", "trace.jsonl", "model_calls.jsonl", "result.json", "snapshots/manifest.jsonl")
WORDS = [
    *(
        b"\n",
        b"{",
        b"}",
        b'"',
        b'{"number":1',
        b'"number":',
        b'"step":0',
        b"null",
        b"[" * 300,
        b'{"a":' * 300,
    ),
    *(b'"format":', b"1e999", b'"\\ud800"', b'"args":{}', b'"call":', b'"limits":', b'"steps":'),
]
MAKERS = {name: mutated([(RECORDED / name).read_bytes()], WORDS) for name in FILES}


def make(random: Random) -> tuple[str, bytes, int]:
    name = random.choice(FILES)
    return name, MAKERS[name](random), random.randrange(9)


def attempt(case: tuple[str, bytes, int], room: Path) -> None:
    name, data, step = case
    run = room / "run"
    (run / "snapshots").mkdir(parents=True, exist_ok=True)
    for old in run.glob("result-*.json"):
        old.unlink()
    for each in FILES:
        shutil.copyfile(RECORDED / each, run / each)
    (run / name).write_bytes(data)
    folder = RunFolder(run)
    steps, calls = folder.steps(), list(folder.calls())
    assert folder.result
    folder.rewind(step)
    kept = list(folder.calls())
    assert folder.steps() == steps[:step] and kept == calls[: len(kept)]
    assert all(call.step <= step for call in kept[-1:]) and all(
        call.step > step for call in calls[len(kept) :]
    )
    assert all(line.step <= step for line in folder.open_store(writable=False).manifest_lines())
