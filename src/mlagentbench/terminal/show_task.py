"""`show TASK`: a task. Outside a terminal without rich, whose import takes a quarter of the time."""

import sys
from collections.abc import Iterator

from mlagentbench.formatting import format_score
from mlagentbench.records import STARTS, Levels
from mlagentbench.task import Task


def collect_card(name: str) -> dict[str, object]:
    """A task as JSON: its name, the content of task.toml, and the description that the agent reads."""
    task = Task.load(name)
    return {"task": task.name, **task.config.model_dump(mode="json"), "description": _describe(task)}


def show_task(name: str) -> None:
    """Print a task: its properties, its measured baselines, and the description that the agent reads."""
    task = Task.load(name)
    if not sys.stdout.isatty():
        print("\n".join([_title(task), *_describe_config(task), "", _describe(task).rstrip()]))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(soft_wrap=True, markup=False, highlight=False, emoji=False)
    console.print(_title(task), style="bold")
    console.print("\n".join([*_describe_config(task), ""]))
    console.print(Markdown(_describe(task)))


def _title(task: Task) -> str:
    return f"{task.name}: {task.config.title}"


def _describe(task: Task) -> str:
    return task.describe(next(iter(task.config.editions)))


def _describe_config(task: Task) -> Iterator[str]:
    config = task.config
    yield f"{config.category} · {config.modality} · {config.metric} ({config.better} is better)"
    yield f"runtime {config.runtime} · submission {config.submission} · {config.limits.steps} steps"
    for name, edition in config.editions.items():
        yield f"{name}: {edition.size}"
        yield from (f"  {line}" for line in _describe_levels(edition.levels))


def _describe_levels(levels: Levels) -> Iterator[str]:
    """One line for each level of a task that is known."""
    for start in STARTS:
        if measured := levels.solution(start):
            spread = f"{format_score(measured.mean)} ± {format_score(measured.sd)} (n = {measured.n})"
            yield f"{start:<10} {spread}"
    if levels.ceiling:
        yield f"{'ceiling':<10} {format_score(levels.ceiling.score)}: {levels.ceiling.how}"
