"""The starter's own scores: those in task.toml for the data they were measured on, else what this machine measured."""

from pathlib import Path

from pydantic import ValidationError

from mlagentbench.errors import UsageError
from mlagentbench.grading.verdict import summarize_scores
from mlagentbench.preparation.prepare import DEFAULT_SEED, PreparedData, data_folder
from mlagentbench.records import Baseline
from mlagentbench.system.cache import cache_dir
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.task import Task


def find_baseline(task: Task, edition: str, data: PreparedData) -> Baseline | None:
    """What a score is held against, if it is known."""
    stored = task.edition(edition).baseline
    if stored and data.folder == data_folder(task, edition, DEFAULT_SEED):
        return stored
    path = _cache_path(task, data)
    try:
        return Baseline.model_validate_json(path.read_bytes()) if path.is_file() else None
    except ValidationError as error:
        raise UsageError(f"{path} is damaged; remove it and measure again: mlagentbench baseline") from error


def store_baseline(task: Task, data: PreparedData, scores: list[float]) -> Baseline:
    """Summarise the scores, and remember them for data that task.toml knows nothing of."""
    machine = detect_hardware()
    found = summarize_scores(scores, f"{machine.cores} cores, {machine.cpu}")
    path = _cache_path(task, data)
    path.parent.mkdir(exist_ok=True)
    whole = path.with_suffix(".part")
    whole.write_text(found.model_dump_json(indent=1))
    whole.rename(path)
    return found


def _cache_path(task: Task, data: PreparedData) -> Path:
    return (
        cache_dir()
        / "baselines"
        / f"{task.name}-{data.instance}-{data.hash[:16]}-{task.grader_hash[:16]}.json"
    )
