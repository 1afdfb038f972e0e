"""The starter's own scores: those in task.toml for the data they were measured on, else what this machine measured."""

from pathlib import Path

from pydantic import ValidationError

from mlagentbench.errors import UsageError
from mlagentbench.grading.verdict import summarise
from mlagentbench.hardware import hardware
from mlagentbench.home import home
from mlagentbench.preparation.prepare import DEFAULT_SEED, Prepared, place
from mlagentbench.records import Baseline
from mlagentbench.task import Task


def baseline_of(task: Task, edition: str, data: Prepared) -> Baseline | None:
    """What a score is held against, if it is known."""
    stored = task.edition(edition).baseline
    if stored and data.folder == place(task, edition, DEFAULT_SEED):
        return stored
    path = _place(task, data)
    try:
        return Baseline.model_validate_json(path.read_bytes()) if path.is_file() else None
    except ValidationError as error:
        raise UsageError(f"{path} is damaged; remove it and measure again: mlagentbench baseline") from error


def keep(task: Task, data: Prepared, scores: list[float]) -> Baseline:
    """Summarise the scores, and remember them for data that task.toml knows nothing of."""
    machine = hardware()
    found = summarise(scores, f"{machine.cores} cores, {machine.cpu}")
    path = _place(task, data)
    path.parent.mkdir(exist_ok=True)
    whole = path.with_suffix(".part")
    whole.write_text(found.model_dump_json(indent=1))
    whole.rename(path)
    return found


def _place(task: Task, data: Prepared) -> Path:
    return home() / "baselines" / f"{task.name}-{data.instance}-{data.hash[:16]}-{task.grader_hash[:16]}.json"
