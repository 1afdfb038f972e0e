"""`show`: a run, one step of it, what it changed; or a task's card. Of a run only its folder is needed."""

import json
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from mlagentbench.errors import UsageError
from mlagentbench.formatting import format_command, format_score
from mlagentbench.preparation.prepare import PreparedData, find_prepared_data
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.task import Task
from mlagentbench.terminal.trace import outside_accesses, show_diff, show_step, show_trace, show_verdict


def show_run(path: Path, step: int | None, diff: bool, as_json: bool, name: str = "") -> None:
    """A run, or a part of it, for a person or for a program; `name` is what they call it, if not by its folder."""
    folder = RunFolder(path)
    steps = folder.steps()
    if step is not None and not 1 <= step <= len(steps):
        raise UsageError(f"{path} has no step {step}; it has {len(steps)} steps")
    console = _plain_console()
    if diff:
        text = _diff(folder, (step - 1, step) if step else (0, len(steps)))
        print(json.dumps({"diff": text})) if as_json else show_diff(text, console)
    elif step:
        strays = outside_accesses(folder, step)
        if as_json:
            print(
                json.dumps(
                    {**steps[step - 1].model_dump(mode="json"), "strays": strays},
                    default=_to_json_value,
                    indent=2,
                )
            )
        else:
            show_step(steps[step - 1], strays, console)
    elif as_json:
        strayed = {each.number: found for each in steps if (found := outside_accesses(folder, each.number))}
        told = {"run": folder.spec, "steps": steps, "result": folder.result, "strays": strayed}
        print(json.dumps(told, default=_to_json_value, indent=2))
    else:
        _show_whole_run(folder, console, name or str(folder.path))


def _plain_console() -> Console:
    """A console that breaks no line of ours, and finds no markup or links in what agents wrote."""
    return Console(soft_wrap=True, markup=False, highlight=False, emoji=False)


def _show_whole_run(folder: RunFolder, console: Console, name: str) -> None:
    result = folder.result
    show_trace(folder, console)
    console.print()
    if result:
        show_verdict(result.replace(folder=name), folder.spec, console)
    else:
        console.print(f"unfinished; go on with: {format_command('resume', name)}")
    one = f"{format_command('show', name)} --step N"
    console.print(f"a step in full: {one}; what it changed: {one} --diff", style="dim")


def show_result(result: Result) -> None:
    """What came of a run."""
    show_verdict(result, RunFolder(Path(result.folder)).spec, _plain_console())


def _diff(folder: RunFolder, between: tuple[int, int]) -> str:
    return folder.open_store(_find_data(folder), writable=False).diff(*between)


def _find_data(folder: RunFolder) -> PreparedData | None:
    """The data, if this machine has it: without, files that were given and never changed have no content."""
    try:
        return find_prepared_data(Task.load(folder.spec.task), folder.spec.edition, folder.spec.hashes.data)
    except UsageError:
        return None


def _to_json_value(value: object) -> object:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


def show_task(name: str, as_json: bool) -> None:
    """A task's card: what it is, what was measured on it, what the agent reads."""
    task = Task.load(name)
    config = task.config
    description = task.describe(next(iter(config.editions)))
    if as_json:
        card = {"task": task.name, **config.model_dump(mode="json"), "description": description}
        print(json.dumps(card, indent=2))
        return
    console = _plain_console()
    console.print(f"{task.name}: {config.title}", style="bold")
    console.print(f"{config.category} · {config.modality} · {config.metric} ({config.better} is better)")
    console.print(f"runtime {config.runtime} · submission {config.submission} · {config.limits.steps} steps")
    for edition_name, edition in config.editions.items():
        known = edition.baseline
        baseline = (
            f"{format_score(known.mean)} ± {format_score(known.sd)} (n = {known.n})"
            if known
            else "not measured"
        )
        console.print(
            f"{edition_name}: {edition.size}; baseline {baseline}; reference {format_score(edition.reference)}"
        )
    console.print()
    console.print(Markdown(description) if console.is_terminal else description.rstrip())
