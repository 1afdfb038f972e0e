"""What an agent ran on the way to its submission: a rule can be broken by a script that is gone in the end."""

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from mlagentbench.errors import ActionError
from mlagentbench.grading.sources import SOURCE, UNSEEN
from mlagentbench.records import Step
from mlagentbench.workspace.manifest import Entry, State
from mlagentbench.workspace.paths import normal
from mlagentbench.workspace.store import Store

SCRIPTS = 1000  # of one state that are looked at
CROWDED = f"there are over {SCRIPTS:,} scripts, and not all were looked at"
LONGEST = 1000  # bytes of a path
ROOM, BLOCK = 256 << 20, 4096  # bytes that all earlier states may take on the disk, and what a file takes at least
ELSEWHERE = Entry("link", target="nowhere")  # what cannot be looked at is laid out as a link
RUN = (".py", ".pyc", ".so")  # what Python imports
FIRST = "train.py"  # where the rules on training begin; another script that ran is looked at in its place
SESSION = "Python REPL"
OUTSIDE = "Command"  # a turn of an outside program, which names no script


class Ran(NamedTuple):
    """What ran and changed files: its step, its path, the scripts beside it; or what an interpreter was told."""

    step: int
    script: str
    beside: State  # by their paths from the folder of the script, where Python looks for modules
    unseen: str = ""  # that not all could be looked at, and why
    told: tuple[str, ...] = ()
    transcript: str = ""  # a name that no agent can foresee, or it could make a folder of that name

    @property
    def key(self) -> tuple[object, ...]:
        """What decides its violations."""
        beside = ((name, entry.hash, entry.target) for name, entry in sorted(self.beside.items()))
        return self.script, self.told, *beside


def scripts(state: State, folder: str = "") -> State:
    """What Python could run below a folder, by its path from there; an agent's strange names are no trouble of ours."""
    below = ((name.removeprefix(folder), entry) for name, entry in state.items() if name.startswith(folder))
    return dict(_short(name, entry) for name, entry in below if _runs(name, entry))


def crowded(state: State) -> bool:
    """Whether there are more than are looked at."""
    return len(scripts(state)) > SCRIPTS


def _runs(name: str, entry: Entry) -> bool:
    """Whether Python runs it: scripts, what is compiled, and links, which may lead to a folder of modules."""
    links = entry.kind == "link" and "." not in name.rpartition("/")[2]
    return entry.kind != "folder" and (links or name.endswith(RUN))


def _short(name: str, entry: Entry) -> tuple[str, Entry]:
    """The same, unless its path is too long for the host: then a link ends it."""
    if len(os.fsencode(name)) < LONGEST:
        return name, entry
    path = PurePosixPath(name)
    return next(str(p) for p in (*reversed(path.parents), path) if len(os.fsencode(p)) >= LONGEST), ELSEWHERE


def ran(store: Store, steps: Sequence[Step], submission: str) -> list[Ran]:
    """Whatever ran and changed a file, up to the last change of the submission; each distinct content once."""
    deeds = {step.number: step for step in steps if step.execution or step.call.action in (SESSION, OUTSIDE)}
    found: dict[tuple[object, ...], Ran] = {}
    last = 0
    for number, before, after, changed in _states(store, len(steps)):
        if submission == "." or submission in changed:
            last = number
        if number in deeds and changed:
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
        near, unseen = _near(before)
        unseen = CROWDED if len(told) > SCRIPTS else unseen
        return Ran(step.number, SESSION, near, unseen, tuple(told[-SCRIPTS:]), f"told_{secrets.token_hex(8)}_")
    script = _script(step)
    if not script:  # what an outside program writes it may run in the same turn, so what it left is looked at
        return Ran(step.number, FIRST, *_near(after))
    folder, _, name = script.rpartition("/")
    return Ran(step.number, script, *_near(before, f"{folder}/" if folder else "", name))


def _script(step: Step) -> str:
    """The script that a step ran, if its record names one."""
    try:
        return normal(str(step.call.args.get("script_name", "")))
    except ActionError:
        return ""


def _near(state: State, folder: str = "", started: str = FIRST) -> tuple[State, str]:
    """The scripts below a folder, what was started in the place of the first; and a word if these are not all."""
    found = scripts(state, folder)
    first = {FIRST: entry} if (entry := found.get(started) or found.get(FIRST)) else {}
    others = ((name, entry) for name, entry in found.items() if name != FIRST and not name.startswith(f"{FIRST}/"))
    return first | dict(islice(others, SCRIPTS)), CROWDED if len(found) > SCRIPTS else ""


class Shelf:
    """Lays out states of which much is the same: a content is written once, and there is an end to the room."""

    def __init__(self, store: Store, folder: Path, room: int = ROOM) -> None:
        self._store, self._folder, self._left = store, folder, room
        folder.mkdir()

    def lay(self, each: Ran, target: Path) -> Ran:
        """Write the scripts as they were when it ran; what it returns says so if not all have room."""
        target.mkdir()
        made: set[PurePosixPath] = set()
        for name, entry in each.beside.items():
            folders = set(PurePosixPath(name).parents) - made
            made |= folders
            if not self._takes(BLOCK * (1 + len(folders))) or not self._put(each.step, name, entry, target / name):
                return each._replace(unseen=UNSEEN)
        return each if self._tell(each, target) else each._replace(unseen=UNSEEN)

    def _takes(self, size: int) -> bool:
        self._left -= size
        return self._left >= 0

    def _put(self, step: int, name: str, entry: Entry, place: Path) -> bool:
        if not _readable(name, entry):
            put(self._store, step, name, entry, place)
            return True
        content = self._folder / entry.hash
        if not content.exists():
            if not self._takes(entry.size):
                return False
            put(self._store, step, name, entry, content)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            place.hardlink_to(content)
        except OSError:  # a file has only so many names, and on some disks one
            if not self._takes(entry.size):
                return False
            put(self._store, step, name, entry, place)
        return True

    def _tell(self, each: Ran, target: Path) -> bool:
        """Each command is a module of its own: one that is no Python must not hide the others."""
        modules = [f"{each.transcript}{number}" for number in range(len(each.told))]
        if modules:
            (target / FIRST).unlink(missing_ok=True)
            (target / FIRST).write_text("".join(f"import {module}\n" for module in modules))
        for module, command in zip(modules, each.told, strict=True):
            text = command[: SOURCE + 1].encode("utf-8", "backslashreplace")
            if not self._takes(BLOCK + len(text)):
                return False
            (target / f"{module}.py").write_bytes(text)
        return True


def put(store: Store, step: int, name: str, entry: Entry, place: Path) -> None:
    """Write a script as it was; of what is not looked at, only what it is."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if entry.kind == "link":
        place.symlink_to(ELSEWHERE.target)
    elif _readable(name, entry):
        store.export_entry(step, name, entry, place)
    else:
        with place.open("wb") as file:
            file.truncate(min(entry.size, SOURCE + 1))


def _readable(name: str, entry: Entry) -> bool:
    """Whether its content is looked at: not if it is compiled, a link or too long."""
    return entry.kind == "file" and name.endswith(".py") and entry.size <= SOURCE


def said(runs: Iterable[Ran], sentences: Iterable[Sequence[str]], known: Sequence[str]) -> Iterator[str]:
    """The violations of earlier scripts with their step; what the submission itself still shows is not said again."""
    heard = set(known)
    for each, found in zip(runs, sentences, strict=True):
        name, told = PurePosixPath(each.script).name, re.compile(rf"^{each.transcript}\d+\.py")
        for sentence in (*found, each.unseen) if each.unseen else found:
            named = f"{name}{sentence.removeprefix(FIRST)}" if sentence.startswith(f"{FIRST} ") else sentence
            named = told.sub(SESSION, named) if each.told else named
            if named not in heard:
                heard.add(named)
                yield f"step {each.step}: {named}"
