"""`show`: a run, one step of it, what it changed; or a task's card. Of a run only its folder is needed."""

import json
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from mlagentbench.errors import UsageError
from mlagentbench.preparation.prepare import Prepared, lookup
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.task import Task
from mlagentbench.terminal.story import changes, one_step, story, strays_of, verdict
from mlagentbench.words import command, number


def show_run(path: Path, step: int | None, diff: bool, as_json: bool, name: str = "") -> None:
    """A run, or a part of it, for a person or for a program; `name` is what they call it, if not by its folder."""
    folder = RunFolder(path)
    steps = folder.steps()
    if step is not None and not 1 <= step <= len(steps):
        raise UsageError(f"{path} has no step {step}; it has {len(steps)} steps")
    console = _console()
    if diff:
        text = _diff(folder, (step - 1, step) if step else (0, len(steps)))
        print(json.dumps({"diff": text})) if as_json else changes(text, console)
    elif step:
        strays = strays_of(folder, step)
        if as_json:
            print(json.dumps({**steps[step - 1].model_dump(mode="json"), "strays": strays}, default=_plain, indent=2))
        else:
            one_step(steps[step - 1], strays, console)
    elif as_json:
        strayed = {each.number: found for each in steps if (found := strays_of(folder, each.number))}
        told = {"run": folder.spec, "steps": steps, "result": folder.result, "strays": strayed}
        print(json.dumps(told, default=_plain, indent=2))
    else:
        _show_all(folder, console, name or str(folder.path))


def _console() -> Console:
    """A console that breaks no line of ours, and finds no markup or links in what agents wrote."""
    return Console(soft_wrap=True, markup=False, highlight=False, emoji=False)


def _show_all(folder: RunFolder, console: Console, name: str) -> None:
    result = folder.result
    story(folder, console)
    console.print()
    if result:
        verdict(result.but(folder=name), folder.spec, console)
    else:
        console.print(f"unfinished; go on with: {command('resume', name)}")
    one = f"{command('show', name)} --step N"
    console.print(f"a step in full: {one}; what it changed: {one} --diff", style="dim")


def show_result(result: Result) -> None:
    """What came of a run."""
    verdict(result, RunFolder(Path(result.folder)).spec, _console())


def _diff(folder: RunFolder, between: tuple[int, int]) -> str:
    return folder.store(_data(folder), writable=False).diff(*between)


def _data(folder: RunFolder) -> Prepared | None:
    """The data, if this machine has it: without, files that were given and never changed have no content."""
    try:
        return lookup(Task.load(folder.spec.task), folder.spec.edition, folder.spec.hashes.data)
    except UsageError:
        return None


def _plain(value: object) -> object:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


def show_task(name: str, as_json: bool) -> None:
    """A task's card: what it is, what was measured on it, what the agent reads."""
    task = Task.load(name)
    config = task.config
    if as_json:
        card = {"task": task.name, **config.model_dump(mode="json"), "description": task.description}
        print(json.dumps(card, indent=2))
        return
    console = _console()
    console.print(f"{task.name}: {config.title}", style="bold")
    console.print(f"{config.category} · {config.modality} · {config.metric} ({config.better} is better)")
    console.print(f"runtime {config.runtime} · submission {config.submission} · {config.limits.steps} steps")
    for edition_name, edition in config.editions.items():
        known = edition.baseline
        baseline = f"{number(known.mean)} ± {number(known.sd)} (n = {known.n})" if known else "not measured"
        console.print(f"{edition_name}: {edition.size}; baseline {baseline}; reference {number(edition.reference)}")
    console.print()
    console.print(Markdown(task.description) if console.is_terminal else task.description.rstrip())
