"""What an agent ran on the way to its submission: a rule can be broken by a script that is gone in the end."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from mlagentbench.errors import ActionError
from mlagentbench.grading.sources import SOURCE
from mlagentbench.records import Step
from mlagentbench.workspace.manifest import Entry, State
from mlagentbench.workspace.paths import normal
from mlagentbench.workspace.store import Store

SCRIPTS = 1000  # of one state that are looked at
CROWDED = f"there are over {SCRIPTS:,} scripts, and not all were looked at"
LONGEST = 1000  # characters of a path
FIRST = "train.py"  # where the rules on training begin; another script that ran is looked at in its place
SESSION = "Python REPL"
OUTSIDE = "Command"  # a turn of an outside program, which names no script
TOLD = "told_to_the_interpreter_{}.py"
AS_TOLD = re.compile("^" + TOLD.format(r"\d+"))


class Ran(NamedTuple):
    """What ran and changed files: its step, its path, the scripts beside it; or what an interpreter was told."""

    step: int
    script: str
    beside: State
    crowded: bool = False
    told: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The folder of the script, where Python looks for modules."""
        above = PurePosixPath(self.script).parent.as_posix() if not self.told else "."
        return "" if above == "." else f"{above}/"

    @property
    def key(self) -> tuple[object, ...]:
        """What decides its violations."""
        beside = ((name, entry.hash, entry.target) for name, entry in sorted(self.beside.items()))
        return self.script, self.told, *beside


def scripts(state: State) -> State:
    """The files that may hold what a task's rules are about; an agent's strange names are no trouble of ours."""
    return {name: entry for name, entry in state.items() if _is_script(name, entry)}


def crowded(state: State) -> bool:
    """Whether there are more than are looked at."""
    return len(scripts(state)) > SCRIPTS


def _is_script(name: str, entry: Entry) -> bool:
    return entry.kind != "folder" and name.endswith(".py") and len(name) < LONGEST


def ran(store: Store, steps: Sequence[Step], submission: str) -> list[Ran]:
    """Whatever ran and changed a file, up to the last change of the submission; each distinct content once."""
    deeds = {step.number: step for step in steps if step.execution or step.call.action in (SESSION, OUTSIDE)}
    found: dict[tuple[object, ...], Ran] = {}
    last = 0
    for number, before, after, changed in _states(store, len(steps)):
        if submission == "." or submission in changed:
            last = number
        if number in deeds and any("__pycache__" not in path for path in changed):
            each = _deed(deeds[number], steps, before, after)
            found.setdefault(each.key, each)
    return [each for each in found.values() if each.step <= last]


def _states(store: Store, last: int) -> Iterator[tuple[int, State, State, set[str]]]:
    """Each step that changed anything, with all that there was before it and after it, and what it changed."""
    state: State = {}
    for line in store.lines():
        before, removed = state, set(line.removed)
        state = {path: entry for path, entry in before.items() if path not in removed} | line.changed
        if 0 < line.step <= last:
            yield line.step, before, state, set(line.changed)


def _deed(step: Step, steps: Sequence[Step], before: State, after: State) -> Ran:
    if step.call.action == SESSION:
        told = [str(each.call.args.get("command", "")) for each in steps[: step.number] if each.call.action == SESSION]
        return Ran(step.number, SESSION, _near(before, ""), crowded(before), tuple(told[-SCRIPTS:]))
    script = _script(step)
    if not script:  # what an outside program writes it may run in the same turn, so what it left is looked at
        return Ran(step.number, FIRST, _near(after, ""), crowded(after))
    near = _near(before, Ran(step.number, script, {}).folder)
    found = {**near, script: before[script]} if script in scripts(before) else near
    return Ran(step.number, script, found, crowded(before))


def _script(step: Step) -> str:
    """The script that a step ran, if its record names one."""
    try:
        return normal(str(step.call.args.get("script_name", "")))
    except ActionError:
        return ""


def _near(state: State, folder: str) -> State:
    """The scripts below a folder, but for what lies in one that bears the name of the first script."""
    found = scripts(state).items()
    near = (
        (name, entry) for name, entry in found if name.startswith(folder) and not name.startswith(f"{folder}{FIRST}/")
    )
    return dict(islice(near, SCRIPTS))


def lay(store: Store, each: Ran, target: Path) -> None:
    """Write the scripts as they were when it ran; what ran comes to be where the rules begin."""
    for name, entry in each.beside.items():
        put(store, each.step - 1, name, entry, target / name.removeprefix(each.folder))
    for number, command in enumerate(each.told):  # one that is no Python must not hide the others
        _write(target / TOLD.format(number), command[: SOURCE + 1])
    if each.told:
        modules = (Path(TOLD.format(number)).stem for number in range(len(each.told)))
        _write(target / FIRST, "".join(f"import {module}\n" for module in modules))
    elif each.script in each.beside:
        put(store, each.step - 1, each.script, each.beside[each.script], target / FIRST)


def put(store: Store, step: int, name: str, entry: Entry, place: Path) -> None:
    """Write a script as it was; of a link, and of what is too long to be looked at, only that it is one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)  # which may be a link
    if entry.kind == "link":
        place.symlink_to("nowhere")
    elif entry.size > SOURCE:
        with place.open("wb") as file:
            file.truncate(SOURCE + 1)
    else:
        store.export_entry(step, name, entry, place)


def _write(place: Path, text: str) -> None:
    place.unlink(missing_ok=True)
    place.write_text(text, encoding="utf-8", errors="backslashreplace")


def said(runs: Iterable[Ran], sentences: Iterable[Sequence[str]], known: Sequence[str]) -> Iterator[str]:
    """The violations of earlier scripts with their step; what the submission itself still shows is not said again."""
    heard = set(known)
    for each, found in zip(runs, sentences, strict=True):
        found = [*found, CROWDED] if each.crowded else found
        name = PurePosixPath(each.script).name
        for sentence in found:
            named = f"{name}{sentence.removeprefix(FIRST)}" if sentence.startswith(f"{FIRST} ") else sentence
            named = AS_TOLD.sub(SESSION, named)
            if named not in heard:
                heard.add(named)
                yield f"step {each.step}: {named}"
