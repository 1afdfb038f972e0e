"""What there is: tasks, agents, actions, models, runtimes."""

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from mlagentbench.errors import UsageError
from mlagentbench.words import number

Row = dict[str, Any]
WIDEST = 100  # characters of a cell; --json has them all


def rows(what: str) -> list[Row]:
    """One row for each thing of a kind."""
    kinds: Mapping[str, Callable[[], list[Row]]] = {
        "tasks": _tasks,
        "agents": _agents,
        "actions": _actions,
        "models": _models,
        "runtimes": _runtimes,
    }
    if what not in kinds:
        raise UsageError(f"there is no list of {what!r}; there are: {', '.join(kinds)}")
    return kinds[what]()


def show_rows(found: list[Row]) -> None:
    """A table that fits a terminal and a pipe."""
    if not found:
        print("none")
        return
    cells = [[_cell(value) for value in row.values()] for row in found]
    heads = [name.replace("_", " ") for name in found[0]]
    widths = [max(len(row[i]) for row in [heads, *cells]) for i in range(len(heads))]
    for row in [heads, ["-" * width for width in widths], *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    text = "-" if value is None else str(value)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _tasks() -> list[Row]:
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


def _agents() -> list[Row]:
    from mlagentbench import discovery
    from mlagentbench.agents.base import load

    found = []
    for name in discovery.names("agents"):
        kind = load(name)
        who = "contestant" if kind.contestant else "check of the task"
        found.append({"agent": name, "is_a": who, "what_it_does": _first_line(kind)})
    return found


def _actions() -> list[Row]:
    from mlagentbench.actions.base import load

    return [
        {
            "action": name,
            "arguments": ", ".join(action.arguments.model_fields),
            "what_it_does": action.description,
        }
        for name, action in load(interactive=True, models=True).items()
        if not action.hidden
    ]


def _models() -> list[Row]:
    from mlagentbench import discovery
    from mlagentbench.providers.names import COMPATIBLE, PROVIDERS

    found = []
    for name in discovery.names("models"):
        form, _, what = _first_line(discovery.plugin("models", name)).partition(" ")
        if name != "hosted":  # which is the rows below
            found.append({"model": form, "key": None, "what_it_is": what.removeprefix("is ")})
    for name, provider in PROVIDERS.items():
        found.append({"model": f"{name}:MODEL", "key": _keys(provider.keys), "what_it_is": provider.what})
    compatible = "any server that speaks OpenAI's chat completions"
    return [*found, {"model": "http://HOST:PORT/v1#MODEL", "key": _keys((COMPATIBLE,)), "what_it_is": compatible}]


def _keys(names: tuple[str, ...]) -> str:
    there = [name for name in names if os.environ.get(name)]
    return f"{there[0]}, set" if there else " or ".join(names)


def _runtimes() -> list[Row]:
    from mlagentbench.runtimes.base import LISTS, names, requirements, runtime

    return [
        {
            "runtime": name,
            "built": "yes" if runtime(name).built else "no",
            "what_it_is_for": (LISTS / f"{name}.txt").read_text().partition(".")[0].lstrip("# "),
            "packages": ", ".join(requirements(name)),
        }
        for name in names()
    ]


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n")[0]
