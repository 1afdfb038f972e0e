"""The starter's own scores: those in task.toml for the data they were measured on, else what this machine measured."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from mlagentbench.errors import Fault, TaskFault
from mlagentbench.grading.verdict import summarise
from mlagentbench.hardware import hardware
from mlagentbench.home import home
from mlagentbench.preparation.prepare import DEFAULT_SEED, Prepared, place
from mlagentbench.records import Baseline, Result
from mlagentbench.task import Task

Trial = Callable[[int, Path], Result]


def baseline_of(task: Task, edition: str, data: Prepared) -> Baseline | None:
    """What a score is held against, if it is known."""
    stored = task.edition(edition).baseline
    if stored and data.folder == place(task, edition, DEFAULT_SEED):
        return stored
    path = _place(task, data)
    return Baseline.model_validate_json(path.read_text()) if path.is_file() else None


def measure(seeds: range, trial: Trial) -> Iterator[float]:
    """The scores of the untouched starter, one a seed."""
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="mlagentbench-baseline-") as folder:
            result = trial(seed, Path(folder, "run"))
        if result.ending == "fault":
            raise Fault(result.note)
        if result.score is None:
            raise TaskFault(f"the starter of {result.task} leaves no valid submission: {result.note}")
        yield result.score


def keep(task: Task, data: Prepared, scores: list[float]) -> Baseline:
    """Summarise the scores, and remember them for data that task.toml knows nothing of."""
    machine = hardware()
    found = summarise(scores, f"{machine.cores} cores, {machine.cpu}")
    path = _place(task, data)
    path.parent.mkdir(exist_ok=True)
    path.write_text(found.model_dump_json(indent=1))
    return found


def _place(task: Task, data: Prepared) -> Path:
    return home() / "baselines" / f"{task.name}-{data.instance}-{data.hash[:16]}-{task.grader_hash[:16]}.json"
