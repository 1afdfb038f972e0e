"""What must hold for every finished run, whatever faults were injected."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.soak.scripted_runs import ScriptedRun
from mlagentbench.errors import BenchError
from mlagentbench.preparation.prepare import PreparedData
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder


def check_run(path: Path, expected: ScriptedRun, data: PreparedData) -> Iterator[str]:
    """Check that a run is finished, with no step, model call or snapshot missing, doubled or damaged."""
    try:
        folder = RunFolder(path)
        result, steps, calls = folder.result, folder.steps(), list(folder.calls())
    except BenchError as error:
        yield f"it cannot be read: {error}"
        return
    if result is None or result.ending != "submitted":
        state = f"{result.ending}, {result.note}" if result else "there is no result"
        yield f"it did not finish: {state}"
        return
    actual_calls = [(step.call.action, step.call.args) for step in steps]
    expected_calls = [(call.action, call.args) for call in expected.calls]
    if expected_calls and actual_calls != expected_calls:
        actions = f"{_format_actions(actual_calls)} instead of {_format_actions(expected_calls)}"
        yield f"steps were lost, doubled or changed: {actions}"
    if [call.number for call in calls] != list(range(1, len(calls) + 1)):
        yield f"model calls were lost or doubled: {[call.number for call in calls]}"
    if result.steps != len(steps):
        yield f"the result counts {result.steps} steps, but there are {len(steps)}"
    yield from _check_snapshots(folder, result, len(steps), data)


def _check_snapshots(folder: RunFolder, result: Result, steps: int, data: PreparedData) -> Iterator[str]:
    store = folder.open_store(data, writable=False)
    yield from (f"snapshots: {problem}" for problem in store.find_problems())
    numbers = [line.step for line in store.manifest_lines()]
    if numbers != sorted(set(numbers)) or numbers[:1] != [0] or numbers[-1] > steps:
        yield f"snapshots were lost or doubled: there are {steps} steps, and snapshots of {numbers}"
    for name, content in folder.compute_record_hashes(steps).items():
        if getattr(result, name) != content:
            yield f"the result was computed from a different {name}"


def is_finished(folder: Path) -> bool:
    """Whether there is a result that is not a fault; such a run is never resumed."""
    path = folder / "result.json"
    return path.is_file() and json.loads(path.read_bytes())["ending"] != "fault"


def count_steps_and_calls(path: Path) -> tuple[int, int, float | None]:
    """The steps, the recorded model replies and the score of a finished run."""
    folder = RunFolder(path)
    assert folder.result
    replies = sum(call.reply is not None for call in folder.calls())
    return folder.result.steps, replies, folder.result.score


def list_faults(folder: Path) -> list[str]:
    """The reasons of all failed attempts of a run, without paths and numbers so that they can be counted."""
    faults = []
    for path in folder.glob("result*.json"):
        result = json.loads(path.read_bytes())
        if result["ending"] == "fault":
            faults.append(re.sub(r"(https?:)?/\S*/|\d+", "…", result["note"])[:70])
    return faults


def _format_actions(steps: list[tuple[str, dict[str, object]]]) -> str:
    return ", ".join(action for action, _ in steps) or "none"
