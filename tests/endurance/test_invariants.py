"""The checks of a soak detect every kind of damage to a run."""

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
EXPECTED = ScriptedRun("run", "plain", (), CALLS, STARTER_SCORE)


class CallsAgent(Agent):
    """Makes the calls and nothing else."""

    def run(self, env: Environment) -> None:
        for call in CALLS:
            env.step(call)


@pytest.fixture(scope="module")
def original(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undamaged run."""
    folder = tmp_path_factory.mktemp("original") / "run"
    assert start_run(setup, "calls", folder, agent=CallsAgent()).score == STARTER_SCORE
    return folder


@pytest.fixture
def run_copy(original: Path, tmp_path: Path) -> Path:
    """A copy of the undamaged run."""
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


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a lost result": (lambda run: (run / "result.json").unlink(), "there is no result"),
    "a fault": (
        lambda run: change(run / "result.json", ending="fault", note="?"),
        "did not finish: fault",
    ),
    "a lost step": (lambda run: drop_line(run / "trace.jsonl", 1), "line 2 is step 3"),
    "a lost last step": (lambda run: drop_line(run / "trace.jsonl", 3), "steps were lost"),
    "a doubled step": (
        lambda run: (run / "trace.jsonl").write_bytes((run / "trace.jsonl").read_bytes() * 2),
        "line 5 is step 1",
    ),
    "a changed step": (
        lambda run: (run / "trace.jsonl").write_text((run / "trace.jsonl").read_text().replace('"2"', '"3"')),
        "steps were lost, doubled or changed",
    ),
    "a lost snapshot": (
        lambda run: drop_line(run / "snapshots" / "manifest.jsonl", 1),
        "a different history",
    ),
    "a lost first snapshot": (
        lambda run: drop_line(run / "snapshots" / "manifest.jsonl", 0),
        "snapshots were lost",
    ),
    "a lost object": (drop_last_object, "snapshots: "),
}


def test_an_undamaged_run_passes_all_checks(run_copy: Path, setup: Setup) -> None:
    assert list(check_run(run_copy, EXPECTED, setup.data)) == [] and list_faults(run_copy) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_detected(damage: str, run_copy: Path, setup: Setup) -> None:
    apply_damage, message = DAMAGES[damage]
    apply_damage(run_copy)
    assert message in " ".join(check_run(run_copy, EXPECTED, setup.data))


def test_the_faults_of_all_attempts_are_listed_without_paths_and_numbers(run_copy: Path) -> None:
    (run_copy / "result-1.json").write_bytes((run_copy / "result.json").read_bytes())
    change(
        run_copy / "result-1.json", ending="fault", note="TaskFault: cannot write /some/where/trace.jsonl: 28"
    )
    assert list_faults(run_copy) == ["TaskFault: cannot write …trace.jsonl: …"]
