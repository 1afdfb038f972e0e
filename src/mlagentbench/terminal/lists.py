"""`list`: tasks, agents, actions, models and runtimes; and tables for the terminal."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from mlagentbench.errors import UsageError
from mlagentbench.formatting import format_score, strip_control_chars

if TYPE_CHECKING:
    from mlagentbench.records import Levels

ListRow = dict[str, Any]
EDITIONS: tuple[Literal["open", "paper"], ...] = ("open", "paper")  # a task may lack the second
MAX_CELL_CHARS = 100  # longer cells are cut; --json prints them completely
MAX_UNWRAPPED_CHARS = 24  # only wider columns are wrapped in a narrow terminal
SEPARATOR_CHARS = 2  # between columns
# Columns that a narrow terminal does not show, the least important first.
DETAIL_COLUMNS = ("paper_edition", "open_edition", "category", "modality", "ceiling", "expert")
# A rich box with nothing but a line of dashes below the header.
HEADER_RULE = "    \n    \n -  \n    \n    \n    \n    \n    \n"


def collect_rows(what: str) -> list[ListRow]:
    """One row for each task, agent, action, model or runtime."""
    collectors: Mapping[str, Callable[[], list[ListRow]]] = {
        "tasks": _task_rows,
        "agents": _agent_rows,
        "actions": _action_rows,
        "models": _model_rows,
        "runtimes": _runtime_rows,
    }
    if what not in collectors:
        raise UsageError(f"No such list: {what!r}. Available: {', '.join(collectors)}.")
    return collectors[what]()


def show_list(rows: list[ListRow]) -> None:
    """Print a table, in a terminal without the columns that it has no space for."""
    if sys.stdout.isatty():
        from rich.console import Console

        rows, left_out = fit_columns(rows, Console().width)
        show_table(rows)
        if left_out:
            print(f"Not shown in this terminal: {', '.join(left_out)}. --json prints everything.")
    else:
        show_table(rows)


def fit_columns(rows: list[ListRow], max_width: int) -> tuple[list[ListRow], list[str]]:
    """Leave out the columns of details, from the last, until the table fits; return their names, too."""
    left_out: list[str] = []
    for name in DETAIL_COLUMNS:
        if not rows or _min_width(rows) <= max_width:
            break
        if name in rows[0]:
            rows = [{key: value for key, value in row.items() if key != name} for row in rows]
            left_out.append(name.replace("_", " "))
    return rows, left_out


def _min_width(rows: list[ListRow]) -> int:
    """The width of the narrowest table without folded names."""
    names = list(rows[0])
    widths = [max(len(_format_cell(row[name])) for row in [*rows, {name: name}]) for name in names]
    return sum(min(width, MAX_UNWRAPPED_CHARS) + SEPARATOR_CHARS for width in widths) - SEPARATOR_CHARS


def show_table(rows: list[ListRow]) -> None:
    """Print a table: columns are fitted to the width of a terminal, and never wrapped in a pipe."""
    if not rows:
        print("none")
    elif sys.stdout.isatty():
        _print_fitted_table(rows)
    else:
        for line in _format_lines(rows):
            print(line.rstrip())


def _format_lines(rows: list[ListRow]) -> Iterator[str]:
    """The lines of a table of any width; importing rich for it would take a quarter of the time of `list`."""
    from rich.cells import cell_len

    columns = []
    for name, first in rows[0].items():
        cells = [name.replace("_", " "), *(_format_cell(row[name]) for row in rows)]
        width = max(map(cell_len, cells))
        padding = [" " * (width - cell_len(cell)) for cell in cells]
        is_number = isinstance(first, int | float)
        lines = [pad + cell if is_number else cell + pad for cell, pad in zip(cells, padding, strict=True)]
        columns.append([lines[0], "-" * width, *lines[1:]])
    for number, parts in enumerate(zip(*columns, strict=True)):
        yield ("- " if number == 1 else "  ").join(parts)


def _print_fitted_table(rows: list[ListRow]) -> None:
    from rich.box import Box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=Box(HEADER_RULE, ascii=True), show_edge=False, pad_edge=False, collapse_padding=True)
    cells = [[_format_cell(value) for value in row.values()] for row in rows]
    min_width = 0
    for index, (name, value) in enumerate(rows[0].items()):
        header = name.replace("_", " ")
        width = max(cell_len(text) for text in (header, *(row[index] for row in cells)))
        justify: Literal["left", "right"] = "right" if isinstance(value, int | float) else "left"
        no_wrap = width <= MAX_UNWRAPPED_CHARS
        table.add_column(Text(header), justify=justify, no_wrap=no_wrap, overflow="fold")
        min_width += min(width, MAX_UNWRAPPED_CHARS) + SEPARATOR_CHARS
    min_width -= SEPARATOR_CHARS
    for row in cells:
        table.add_row(*map(Text, row))
    # In a terminal that is too narrow for all columns, the lines are longer than the terminal is wide.
    console = Console(width=max(Console().width, min_width))
    for line in console.render_lines(table, pad=False):
        print("".join(segment.text for segment in line).rstrip())


def _format_cell(value: object) -> str:
    if isinstance(value, float):
        return format_score(value)
    text = "-" if value is None else strip_control_chars(str(value))
    return text if len(text) <= MAX_CELL_CHARS else f"{text[: MAX_CELL_CHARS - 1]}…"


def _task_rows() -> list[ListRow]:
    from mlagentbench.task import Task

    rows = []
    for task in map(Task.load, Task.names()):
        open_edition = task.edition("open")
        arrow = "↑" if task.config.better == "higher" else "↓"
        rows.append(
            {
                "task": task.name,
                "metric": f"{task.config.metric} {arrow}",
                **_level_scores(open_edition.levels),
                "modality": task.config.modality,
                "category": task.config.category,
                **{
                    f"{name}_edition": edition.size if (edition := task.config.editions.get(name)) else None
                    for name in EDITIONS
                },
            }
        )
    return rows


def _level_scores(levels: "Levels") -> ListRow:
    from mlagentbench.records import STARTS

    measured = {start: levels.solution(start) for start in STARTS}
    scores = {str(start): level.mean if level else None for start, level in measured.items()}
    return {**scores, "ceiling": levels.ceiling.score if levels.ceiling else None}


def _agent_rows() -> list[ListRow]:
    from mlagentbench import discovery
    from mlagentbench.agents.base import load_agent_class

    rows = []
    for name in discovery.plugin_names("agents"):
        agent_class = load_agent_class(name)
        kind = "agent" if agent_class.ranked else "task check"
        model = "a model" if agent_class.needs_model else ""
        model += " that calls tools" if agent_class.needs_tools else ""
        needs = "; ".join(filter(None, (model, agent_class.requirements)))
        rows.append(
            {"agent": name, "type": kind, "needs": needs or None, "what_it_does": _first_line(agent_class)}
        )
    return rows


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

    rows = []
    for name in discovery.plugin_names("models"):
        spec, _, description = _first_line(discovery.load_plugin("models", name)).partition(" ")
        # The providers of hosted models have a row each, below.
        if name != "hosted":
            rows.append({"model": spec, "key": None, "what_it_is": description.removeprefix("is ")})
    for name, provider in PROVIDERS.items():
        keys = _describe_keys(provider.key_variables)
        rows.append({"model": f"{name}:MODEL", "key": keys, "what_it_is": provider.description})
    compatible = {
        "model": "http://HOST:PORT/v1#MODEL",
        "key": _describe_keys((COMPATIBLE_KEY_VARIABLE,)),
        "what_it_is": "any server with an OpenAI-compatible chat completions API",
    }
    return [*rows, compatible]


def _describe_keys(variables: tuple[str, ...]) -> str:
    """The environment variables that can hold the key, or the one that is set."""
    for variable in variables:
        if os.environ.get(variable):
            return f"{variable}, set"
    return " or ".join(variables)


def _runtime_rows() -> list[ListRow]:
    from mlagentbench.runtimes.base import REQUIREMENTS_FOLDER, find_runtime, read_requirements, runtime_names

    rows = []
    for name in runtime_names():
        first_sentence = (REQUIREMENTS_FOLDER / f"{name}.txt").read_text().partition(".")[0]
        rows.append(
            {
                "runtime": name,
                "built": "yes" if find_runtime(name).is_built else "no",
                "what_it_is_for": first_sentence.lstrip("# "),
                "packages": ", ".join(read_requirements(name)),
            }
        )
    return rows


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").split("\n")[0]
