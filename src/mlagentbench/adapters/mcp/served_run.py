"""A run to serve: what clients learn at once, and how to open it, which can take minutes."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlagentbench.actions.base import Action, load_actions
from mlagentbench.environment.problem_statement import build_problem_statement, describe_run
from mlagentbench.records import Limits, Start
from mlagentbench.runner.baselines import find_levels_before_preparation
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import EnvironmentCallback
from mlagentbench.runner.session import Session, reopen_session
from mlagentbench.runner.start import merge_limits
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task

OpenSession = Callable[[ProgressCallback], AbstractContextManager[Session]]


@dataclass(frozen=True)
class ServedRun:
    """What clients are told before the data and the runtime are ready, and `open`, which prepares them."""

    task_name: str
    problem_statement: str
    limits: Limits
    actions: Mapping[str, Action]
    open: OpenSession


def describe_new_run(
    task: Task,
    edition: str,
    instance: str,
    gpu: str,
    start: Start,
    limits: dict[str, Any],
    has_model: bool,
    open_run: OpenSession,
) -> ServedRun:
    """Describe a run that does not exist yet.

    Args:
        task: The task.
        edition: The edition of its data.
        instance: The data instance; empty for the default data.
        gpu: The GPUs that scripts may use, as in `prepare_setup`.
        start: The solution that the agent starts from.
        limits: Fields of `Limits` that replace those of the task.
        has_model: Whether actions that need a model are offered.
        open_run: Prepares and opens the run with these settings.

    Raises:
        UsageError: The edition or a limit is wrong.
    """
    merged = merge_limits(task, limits)
    levels = find_levels_before_preparation(task, edition, instance)
    statement = build_problem_statement(
        task, edition, merged, detect_hardware(), gpu, start, levels, has_model
    )
    return ServedRun(task.name, statement, merged, _offered_actions(has_model, merged), open_run)


def describe_resumed_run(
    path: Path, from_step: int | None = None, on_open: EnvironmentCallback | None = None
) -> ServedRun:
    """Describe a run whose client left; the arguments are those of `reopen_session`.

    Raises:
        UsageError: There is no such run.
    """
    spec = RunFolder(path).spec
    task = Task.load(spec.task)
    statement = describe_run(task, spec, bool(spec.model))
    return ServedRun(
        task_name=task.name,
        problem_statement=statement,
        limits=spec.limits,
        actions=_offered_actions(bool(spec.model), spec.limits),
        open=lambda progress: reopen_session(path, progress, from_step, on_open=on_open),
    )


def _offered_actions(models: bool, limits: Limits) -> dict[str, Action]:
    actions = load_actions(models=models, limits=limits)
    return {name: action for name, action in actions.items() if not action.is_internal}
