"""Finds and stores baselines, the scores of the unchanged starter.

task.toml holds the baseline of the default data. Baselines of other data are measured and cached here.
"""

from pathlib import Path

from pydantic import ValidationError

from mlagentbench.errors import UsageError
from mlagentbench.grading.verdict import summarize_scores
from mlagentbench.preparation.prepare import DEFAULT_SEED, PreparedData, data_folder
from mlagentbench.records import Baseline
from mlagentbench.system.atomic_write import write_atomic
from mlagentbench.system.cache import cache_dir
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.task import Task


def find_baseline(task: Task, edition: str, data: PreparedData) -> Baseline | None:
    """Find the baseline for this data, or None if it was never measured."""
    stored = task.edition(edition).baseline
    if stored and data.folder == data_folder(task, edition, DEFAULT_SEED):
        return stored
    path = _cache_path(task, data)
    try:
        return Baseline.model_validate_json(path.read_bytes()) if path.is_file() else None
    except ValidationError as error:
        raise UsageError(
            f"{path} is damaged. Delete it and measure the baseline again: mlagentbench baseline"
        ) from error


def store_baseline(task: Task, data: PreparedData, scores: list[float]) -> Baseline:
    """Summarize the scores and cache them for this data."""
    machine = detect_hardware()
    baseline = summarize_scores(scores, f"{machine.cores} cores, {machine.cpu}")
    path = _cache_path(task, data)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, baseline.model_dump_json(indent=1))
    return baseline


def _cache_path(task: Task, data: PreparedData) -> Path:
    name = f"{task.name}-{data.instance}-{data.hash[:16]}-{task.grader_hash[:16]}.json"
    return cache_dir() / "baselines" / name
