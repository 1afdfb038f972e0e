"""The soak sees whatever may be wrong with a run; else its silence would mean nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.soak.invariants import check_run, list_faults
from benchmarks.soak.scripted_runs import STARTER_SCORE, SUBMIT, TRAIN, ScriptedRun, write
from mlagentbench.agents.base import Agent
from mlagentbench.environment.environment import Environment
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import start_run

CALLS = (write("a", "1"), write("a", "2"), TRAIN, SUBMIT)
PART = ScriptedRun("part", "plain", (), CALLS, STARTER_SCORE)


class Doer(Agent):
    """Does the steps, and nothing else."""

    def run(self, env: Environment) -> None:
        for call in CALLS:
            env.step(call)


@pytest.fixture(scope="module")
def original(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    place = tmp_path_factory.mktemp("original") / "run"
    assert start_run(setup, "doer", place, agent=Doer()).score == STARTER_SCORE
    return place


@pytest.fixture
def whole(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(original, tmp_path / "run", symlinks=True)


def drop_line(path: Path, number: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))


def change(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}))


def drop_last_object(run: Path) -> None:
    line = json.loads((run / "snapshots" / "manifest.jsonl").read_bytes().splitlines()[2])
    content = next(word for word in json.dumps(line).replace('"', " ").split() if len(word) == 64)
    for path in (run / "snapshots" / "objects").rglob("*"):
        if path.is_file() and content in f"{path.parent.name}{path.name}":
            path.unlink()


SPOILS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a lost result": (lambda run: (run / "result.json").unlink(), "there is no result"),
    "a fault": (
        lambda run: change(run / "result.json", ending="fault", note="?"),
        "never came to its end: fault",
    ),
    "a lost step": (lambda run: drop_line(run / "trace.jsonl", 1), "line 2 is step 3"),
    "a lost last step": (lambda run: drop_line(run / "trace.jsonl", 3), "steps were lost"),
    "a doubled step": (
        lambda run: (run / "trace.jsonl").write_bytes((run / "trace.jsonl").read_bytes() * 2),
        "line 5 is step 1",
    ),
    "another step": (
        lambda run: (run / "trace.jsonl").write_text((run / "trace.jsonl").read_text().replace('"2"', '"3"')),
        "steps were lost, doubled or changed",
    ),
    "a lost snapshot": (lambda run: drop_line(run / "snapshots" / "manifest.jsonl", 1), "another history"),
    "a lost first snapshot": (
        lambda run: drop_line(run / "snapshots" / "manifest.jsonl", 0),
        "snapshots were lost",
    ),
    "a lost content": (drop_last_object, "snapshots: "),
}


def test_a_run_that_nothing_happened_to_is_whole(whole: Path, setup: Setup) -> None:
    assert list(check_run(whole, PART, setup.data)) == [] and list_faults(whole) == []


@pytest.mark.parametrize("spoil", SPOILS)
def test_it_is_seen_if_there_is(spoil: str, whole: Path, setup: Setup) -> None:
    deed, words = SPOILS[spoil]
    deed(whole)
    assert words in " ".join(check_run(whole, PART, setup.data))


def test_faults_of_all_tries_are_counted_in_words_that_repeat(whole: Path) -> None:
    (whole / "result-1.json").write_bytes((whole / "result.json").read_bytes())
    change(
        whole / "result-1.json", ending="fault", note="TaskFault: cannot write /some/where/trace.jsonl: 28"
    )
    assert list_faults(whole) == ["TaskFault: cannot write …trace.jsonl: …"]
