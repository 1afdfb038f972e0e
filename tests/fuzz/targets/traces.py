"""A run folder with one damaged file: read, and rewound to a step."""

import shutil
from pathlib import Path
from random import Random

from mutation import mutate_bytes

from mlagentbench.errors import Fault, UsageError
from mlagentbench.runner.folder import RunFolder

EXPECTED_ERRORS = (Fault, UsageError)
CASES_PER_1000, SHORT_CASES = 30, 150
RECORDED = Path(__file__).parents[2] / "formats" / "1"
FILES = ("run.json", "trace.jsonl", "model_calls.jsonl", "result.json", "snapshots/manifest.jsonl")
TOKENS = [
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
MAKERS = {name: mutate_bytes([(RECORDED / name).read_bytes()], TOKENS) for name in FILES}


def make_case(random: Random) -> tuple[str, bytes, int]:
    name = random.choice(FILES)
    return name, MAKERS[name](random), random.randrange(9)


def run_case(case: tuple[str, bytes, int], folder: Path) -> None:
    name, data, step = case
    run = folder / "run"
    (run / "snapshots").mkdir(parents=True, exist_ok=True)
    for old in run.glob("result-*.json"):
        old.unlink()
    for file_name in FILES:
        shutil.copyfile(RECORDED / file_name, run / file_name)
    (run / name).write_bytes(data)
    run_folder = RunFolder(run)
    steps, calls = run_folder.steps(), list(run_folder.calls())
    assert run_folder.result
    run_folder.rewind(step)
    remaining = list(run_folder.calls())
    assert run_folder.steps() == steps[:step] and remaining == calls[: len(remaining)]
    assert all(call.step <= step for call in remaining[-1:]) and all(
        call.step > step for call in calls[len(remaining) :]
    )
    assert all(line.step <= step for line in run_folder.open_store(writable=False).manifest_lines())
