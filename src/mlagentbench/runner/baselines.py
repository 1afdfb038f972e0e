"""Finds and stores the levels of a task: the scores of its unchanged starter, reference and expert.

task.toml holds the levels of the default data. Levels of other data are measured and cached here.
"""

from pathlib import Path

from pydantic import ValidationError

from mlagentbench.errors import UsageError
from mlagentbench.grading.verdict import summarize_scores
from mlagentbench.preparation.prepare import DEFAULT_SEED, PreparedData, data_folder, find_prepared_data
from mlagentbench.records import STARTS, Baseline, Levels, Start
from mlagentbench.system.atomic_write import write_atomic
from mlagentbench.system.cache import cache_dir
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.system.hashing import hash_tree
from mlagentbench.task import Task


def find_levels(task: Task, edition: str, data: PreparedData) -> Levels:
    """Find the levels for this data; those that were never measured are None."""
    is_default = data.folder == data_folder(task, edition, DEFAULT_SEED)
    stored = task.edition(edition).levels if is_default else Levels()
    missing = [start for start in STARTS if stored.solution(start) is None]
    return stored.replace(**{start: _read_cached(_cache_path(task, data, start)) for start in missing})


def find_levels_before_preparation(task: Task, edition: str, instance: str = "") -> Levels:
    """Find the levels for data that may not be prepared yet; the arguments are those of `prepare_data`."""
    try:
        return find_levels(task, edition, find_prepared_data(task, edition, instance))
    except UsageError:
        return Levels() if instance else task.edition(edition).levels


def _read_cached(path: Path) -> Baseline | None:
    try:
        return Baseline.model_validate_json(path.read_bytes()) if path.is_file() else None
    except ValidationError as error:
        raise UsageError(
            f"{path} is damaged. Delete it and measure the baseline again: mlagentbench baseline"
        ) from error


def store_baseline(task: Task, data: PreparedData, start: Start, scores: list[float]) -> Baseline:
    """Summarize the scores and cache them for this data."""
    machine = detect_hardware()
    baseline = summarize_scores(scores, f"{machine.cores} cores, {machine.cpu}")
    path = _cache_path(task, data, start)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, baseline.model_dump_json(indent=1))
    return baseline


def _cache_path(task: Task, data: PreparedData, start: Start) -> Path:
    # A stronger start is named by its own content: unlike the starter, it is not part of the grader's hash.
    solution = "" if start == "starter" else f"-{start}-{hash_tree(task.folder / start)[:16]}"
    name = f"{task.name}-{data.instance}-{data.hash[:16]}-{task.grader_hash[:16]}{solution}.json"
    return cache_dir() / "baselines" / name
