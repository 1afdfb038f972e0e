"""`show`: a run, one of its steps, or a diff. A run needs only its folder."""

import json
from pathlib import Path

from rich.console import Console

from mlagentbench.errors import UsageError
from mlagentbench.formatting import format_command
from mlagentbench.preparation.prepare import PreparedData, find_prepared_data
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.task import Task
from mlagentbench.terminal.trace import (
    read_unexpected_accesses,
    show_diff,
    show_step,
    show_trace,
    show_verdict,
)


def show_run(path: Path, step: int | None, diff: bool, as_json: bool, name: str = "") -> None:
    """Print a run, one step or a diff; `name` is how the user named the run, if not by its folder."""
    folder = RunFolder(path)
    steps = folder.steps()
    if step is not None and not 1 <= step <= len(steps):
        raise UsageError(f"{path} has no step {step}. It has {len(steps)} steps.")
    console = _plain_console()
    if diff:
        text = _diff(folder, (step - 1, step) if step else (0, len(steps)))
        _print_json({"diff": text}, indent=None) if as_json else show_diff(text, console)
    elif step:
        accesses = read_unexpected_accesses(folder, step)
        if as_json:
            _print_json({**steps[step - 1].model_dump(mode="json"), "unexpected_accesses": accesses})
        else:
            show_step(steps[step - 1], accesses, console)
    elif as_json:
        accesses_by_step = {
            step.number: accesses
            for step in steps
            if (accesses := read_unexpected_accesses(folder, step.number))
        }
        _print_json(
            {
                "run": folder.spec,
                "steps": steps,
                "result": folder.result,
                "unexpected_accesses": accesses_by_step,
            }
        )
    else:
        _show_whole_run(folder, console, name or str(folder.path))


def _plain_console() -> Console:
    """A console that wraps no lines, and interprets no markup or links in the text of agents."""
    return Console(soft_wrap=True, markup=False, highlight=False, emoji=False)


def _show_whole_run(folder: RunFolder, console: Console, name: str) -> None:
    result = folder.result
    show_trace(folder, console)
    console.print()
    if result:
        show_verdict(result.replace(folder=Path(name)), folder.spec, console)
    else:
        console.print(f"unfinished; continue with: {format_command('resume', name)}")
    command = f"{format_command('show', name)} --step N"
    console.print(f"one step: {command}; its changes: {command} --diff", style="dim")


def show_result(result: Result) -> None:
    """Print the verdict of a run."""
    show_verdict(result, RunFolder(result.folder).spec, _plain_console())


def _diff(folder: RunFolder, steps: tuple[int, int]) -> str:
    return folder.open_store(_find_data(folder), writable=False).diff(*steps)


def _find_data(folder: RunFolder) -> PreparedData | None:
    """The task's data, if this machine has it; without it, unchanged input files have no content."""
    try:
        return find_prepared_data(Task.load(folder.spec.task), folder.spec.edition, folder.spec.hashes.data)
    except UsageError:
        return None


def _print_json(value: object, indent: int | None = 2) -> None:
    print(json.dumps(value, default=_to_json_value, indent=indent))


def _to_json_value(value: object) -> object:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)
