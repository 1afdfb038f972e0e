"""What there is: tasks, agents, actions, models, runtimes."""

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from mlagentbench.errors import UsageError
from mlagentbench.formatting import format_score

ListRow = dict[str, Any]
MAX_CELL_CHARS = 100  # characters of a cell; --json has them all


def collect_rows(what: str) -> list[ListRow]:
    """One row for each thing of a kind."""
    kinds: Mapping[str, Callable[[], list[ListRow]]] = {
        "tasks": _task_rows,
        "agents": _agent_rows,
        "actions": _action_rows,
        "models": _model_rows,
        "runtimes": _runtime_rows,
    }
    if what not in kinds:
        raise UsageError(f"there is no list of {what!r}; there are: {', '.join(kinds)}")
    return kinds[what]()


def show_table(found: list[ListRow]) -> None:
    """A table that fits a terminal and a pipe."""
    if not found:
        print("none")
        return
    cells = [[_format_cell(value) for value in row.values()] for row in found]
    heads = [name.replace("_", " ") for name in found[0]]
    widths = [max(len(row[i]) for row in [heads, *cells]) for i in range(len(heads))]
    for row in [heads, ["-" * width for width in widths], *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _format_cell(value: object) -> str:
    if isinstance(value, float):
        return format_score(value)
    text = "-" if value is None else str(value)
    return text if len(text) <= MAX_CELL_CHARS else f"{text[: MAX_CELL_CHARS - 1]}…"


def _task_rows() -> list[ListRow]:
    from mlagentbench.task import Task

    found = []
    for task in map(Task.load, Task.names()):
        edition = task.edition("open")
        arrow = "↑" if task.config.better == "higher" else "↓"
        found.append(
            {
                "task": task.name,
                "category": task.config.category,
                "modality": task.config.modality,
                "metric": f"{task.config.metric} {arrow}",
                "baseline": edition.baseline.mean if edition.baseline else None,
                "reference": edition.reference,
                **{f"{name}_edition": each.size for name, each in task.config.editions.items()},
            }
        )
    return found


def _agent_rows() -> list[ListRow]:
    from mlagentbench import discovery
    from mlagentbench.agents.base import load_agent_class

    found = []
    for name in discovery.plugin_names("agents"):
        kind = load_agent_class(name)
        who = "contestant" if kind.ranked else "check of the task"
        found.append({"agent": name, "is_a": who, "what_it_does": _first_line(kind)})
    return found


def _action_rows() -> list[ListRow]:
    from mlagentbench.actions.base import load_actions

    return [
        {
            "action": name,
            "arguments": ", ".join(action.arguments.model_fields),
            "what_it_does": action.description,
        }
        for name, action in load_actions(interactive=True, models=True).items()
        if not action.is_internal
    ]


def _model_rows() -> list[ListRow]:
    from mlagentbench import discovery
    from mlagentbench.providers.names import COMPATIBLE_KEY_VARIABLE, PROVIDERS

    found = []
    for name in discovery.plugin_names("models"):
        form, _, what = _first_line(discovery.load_plugin("models", name)).partition(" ")
        if name != "hosted":  # which is the rows below
            found.append({"model": form, "key": None, "what_it_is": what.removeprefix("is ")})
    for name, provider in PROVIDERS.items():
        found.append(
            {
                "model": f"{name}:MODEL",
                "key": _describe_keys(provider.key_variables),
                "what_it_is": provider.description,
            }
        )
    compatible = "any server that speaks OpenAI's chat completions"
    return [
        *found,
        {
            "model": "http://HOST:PORT/v1#MODEL",
            "key": _describe_keys((COMPATIBLE_KEY_VARIABLE,)),
            "what_it_is": compatible,
        },
    ]


def _describe_keys(names: tuple[str, ...]) -> str:
    there = [name for name in names if os.environ.get(name)]
    return f"{there[0]}, set" if there else " or ".join(names)


def _runtime_rows() -> list[ListRow]:
    from mlagentbench.runtimes.base import REQUIREMENTS_FOLDER, find_runtime, read_requirements, runtime_names

    return [
        {
            "runtime": name,
            "built": "yes" if find_runtime(name).is_built else "no",
            "what_it_is_for": (REQUIREMENTS_FOLDER / f"{name}.txt")
            .read_text()
            .partition(".")[0]
            .lstrip("# "),
            "packages": ", ".join(read_requirements(name)),
        }
        for name in runtime_names()
    ]


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n")[0]
