"""What must hold of every run when all is over, whatever was done to it on the way."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.soak.scripted_runs import ScriptedRun
from mlagentbench.errors import BenchError
from mlagentbench.preparation.prepare import PreparedData
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder


def check_run(place: Path, part: ScriptedRun, data: PreparedData) -> Iterator[str]:
    """Finished, every step there once and in order, every content of every snapshot there and right."""
    try:
        folder = RunFolder(place)
        result, steps, calls = folder.result, folder.steps(), list(folder.calls())
    except BenchError as error:
        yield f"it cannot be read: {error}"
        return
    if result is None or result.ending != "submitted":
        yield f"it never came to its end: {f'{result.ending}, {result.note}' if result else 'there is no result'}"
        return
    done = [(step.call.action, step.call.args) for step in steps]
    wanted = [(call.action, call.args) for call in part.calls]
    if wanted and done != wanted:
        yield f"steps were lost, doubled or changed: {_format_actions(done)} instead of {_format_actions(wanted)}"
    if [call.number for call in calls] != list(range(1, len(calls) + 1)):
        yield f"calls of the model were lost or doubled: {[call.number for call in calls]}"
    if result.steps != len(steps):
        yield f"the result speaks of {result.steps} steps, and there are {len(steps)}"
    yield from _check_snapshots(folder, result, len(steps), data)


def _check_snapshots(folder: RunFolder, result: Result, steps: int, data: PreparedData) -> Iterator[str]:
    store = folder.open_store(data, writable=False)
    yield from (f"snapshots: {problem}" for problem in store.find_problems())
    numbers = [line.step for line in store.manifest_lines()]
    if numbers != sorted(set(numbers)) or numbers[:1] != [0] or numbers[-1] > steps:
        yield f"snapshots were lost or doubled: of steps {numbers}, and there are {steps}"
    for name, content in folder.compute_record_hashes(steps).items():
        if getattr(result, name) != content:
            yield f"the result was made from another {name}"


def is_finished(place: Path) -> bool:
    """Whether there is a result that is not a fault: such a run is never gone on with."""
    path = place / "result.json"
    return path.is_file() and json.loads(path.read_bytes())["ending"] != "fault"


def count_steps_and_calls(place: Path) -> tuple[int, int, float | None]:
    """Of a whole run: its steps, the answers of its model that are on record, its score."""
    folder = RunFolder(place)
    assert folder.result
    return folder.result.steps, sum(call.reply is not None for call in folder.calls()), folder.result.score


def list_faults(place: Path) -> list[str]:
    """Why its tries failed, in words that repeat: as many as there were."""
    found = []
    for path in place.glob("result*.json"):
        told = json.loads(path.read_bytes())
        if told["ending"] == "fault":
            found.append(re.sub(r"(https?:)?/\S*/|\d+", "…", told["note"])[:70])
    return found


def _format_actions(steps: list[tuple[str, dict[str, object]]]) -> str:
    return ", ".join(action for action, _ in steps) or "none"
