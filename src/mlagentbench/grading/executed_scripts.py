"""What an agent ran on the way to its submission: a rule can be broken by a script that is gone in the end."""

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from mlagentbench.errors import ActionError
from mlagentbench.grading.script_rules import MAX_SOURCE_BYTES, NOT_ALL_CHECKED
from mlagentbench.records import Step
from mlagentbench.workspace.manifest import Entry, State
from mlagentbench.workspace.paths import normalize_path
from mlagentbench.workspace.store import Store

MAX_SCRIPTS = 1000  # of one state that are looked at
TOO_MANY_SCRIPTS = f"there are over {MAX_SCRIPTS:,} scripts, and not all were looked at"
MAX_SCRIPT_PATH_BYTES = 1000  # bytes of a path
MAX_EXPORT_BYTES, BLOCK_BYTES = (
    256 << 20,
    4096,
)  # bytes that all earlier states may take on the disk, and what a file takes at least
PLACEHOLDER_LINK = Entry("link", target="nowhere")  # what cannot be looked at is laid out as a link
IMPORTABLE_SUFFIXES = (".py", ".pyc", ".so")  # what Python imports
ENTRY_SCRIPT = (
    "train.py"  # where the rules on training begin; another script that ran is looked at in its place
)
REPL_ACTION = "Python REPL"
COMMAND_ACTION = "Command"  # a turn of an outside program, which names no script


class ExecutedScript(NamedTuple):
    """What ran and changed files: its step, its path, the scripts beside it; or what an interpreter was told."""

    step: int
    script: str
    files: State  # by their paths from the folder of the script, where Python looks for modules
    incomplete_reason: str = ""  # that not all could be looked at, and why
    commands: tuple[str, ...] = ()
    module_prefix: str = ""  # a name that no agent can foresee, or it could make a folder of that name

    @property
    def content_key(self) -> tuple[object, ...]:
        """What decides its violations."""
        beside = ((name, entry.hash, entry.target) for name, entry in sorted(self.files.items()))
        return self.script, self.commands, *beside


def find_scripts(state: State, folder: str = "") -> State:
    """What Python could run below a folder, by its path from there; an agent's strange names are no trouble of ours."""
    below = ((name.removeprefix(folder), entry) for name, entry in state.items() if name.startswith(folder))
    return dict(_shorten_path(name, entry) for name, entry in below if _is_runnable(name, entry))


def has_too_many_scripts(state: State) -> bool:
    """Whether there are more than are looked at."""
    return len(find_scripts(state)) > MAX_SCRIPTS


def _is_runnable(name: str, entry: Entry) -> bool:
    """Whether Python runs it: scripts, what is compiled, and links, which may lead to a folder of modules."""
    links = entry.kind == "link" and "." not in name.rpartition("/")[2]
    return entry.kind != "folder" and (links or name.endswith(IMPORTABLE_SUFFIXES))


def _shorten_path(name: str, entry: Entry) -> tuple[str, Entry]:
    """The same, unless its path is too long for the host: then a link ends it."""
    if len(os.fsencode(name)) < MAX_SCRIPT_PATH_BYTES:
        return name, entry
    path = PurePosixPath(name)
    return next(
        str(p) for p in (*reversed(path.parents), path) if len(os.fsencode(p)) >= MAX_SCRIPT_PATH_BYTES
    ), PLACEHOLDER_LINK


def find_executed_scripts(store: Store, steps: Sequence[Step], submission: str) -> list[ExecutedScript]:
    """Whatever ran and changed a file, up to the last change of the submission; each distinct content once."""
    deeds = {
        step.number: step
        for step in steps
        if step.execution or step.call.action in (REPL_ACTION, COMMAND_ACTION)
    }
    found: dict[tuple[object, ...], ExecutedScript] = {}
    last = 0
    for number, before, after, changed in _iter_states(store, len(steps)):
        if submission == "." or submission in changed:
            last = number
        if number in deeds and changed:
            each = _executed_at(deeds[number], steps, before, after)
            found.setdefault(each.content_key, each)
    return [each for each in found.values() if each.step <= last]


def _iter_states(store: Store, last: int) -> Iterator[tuple[int, State, State, set[str]]]:
    """Each step that changed anything, with all that there was before it and after it, and what it changed."""
    state: State = {}
    for line in store.manifest_lines():
        before, removed = state, set(line.removed)
        state = {path: entry for path, entry in before.items() if path not in removed} | line.changed
        if 0 < line.step <= last:
            yield line.step, before, state, set(line.changed)


def _executed_at(step: Step, steps: Sequence[Step], before: State, after: State) -> ExecutedScript:
    if step.call.action == REPL_ACTION:
        told = [
            str(each.call.args.get("command", ""))
            for each in steps[: step.number]
            if each.call.action == REPL_ACTION
        ]
        near, unseen = _scripts_below(before)
        unseen = TOO_MANY_SCRIPTS if len(told) > MAX_SCRIPTS else unseen
        return ExecutedScript(
            step.number,
            REPL_ACTION,
            near,
            unseen,
            tuple(told[-MAX_SCRIPTS:]),
            f"told_{secrets.token_hex(8)}_",
        )
    script = _script_path(step)
    if not script:  # what an outside program writes it may run in the same turn, so what it left is looked at
        return ExecutedScript(step.number, ENTRY_SCRIPT, *_scripts_below(after))
    folder, _, name = script.rpartition("/")
    return ExecutedScript(step.number, script, *_scripts_below(before, f"{folder}/" if folder else "", name))


def _script_path(step: Step) -> str:
    """The script that a step ran, if its record names one."""
    try:
        return normalize_path(str(step.call.args.get("script_name", "")))
    except ActionError:
        return ""


def _scripts_below(state: State, folder: str = "", started: str = ENTRY_SCRIPT) -> tuple[State, str]:
    """The scripts below a folder, what was started in the place of the first; and a word if these are not all."""
    found = find_scripts(state, folder)
    first = {ENTRY_SCRIPT: entry} if (entry := found.get(started) or found.get(ENTRY_SCRIPT)) else {}
    others = (
        (name, entry)
        for name, entry in found.items()
        if name != ENTRY_SCRIPT and not name.startswith(f"{ENTRY_SCRIPT}/")
    )
    return first | dict(islice(others, MAX_SCRIPTS)), TOO_MANY_SCRIPTS if len(found) > MAX_SCRIPTS else ""


class ScriptExporter:
    """Lays out states of which much is the same: a content is written once, and there is an end to the room."""

    def __init__(self, store: Store, folder: Path, room: int = MAX_EXPORT_BYTES) -> None:
        self._store, self._folder, self._bytes_left = store, folder, room
        folder.mkdir()

    def export(self, executed: ExecutedScript, target: Path) -> ExecutedScript:
        """Write the scripts as they were when it ran; what it returns says so if not all have room."""
        target.mkdir()
        made: set[PurePosixPath] = set()
        for name, entry in executed.files.items():
            folders = set(PurePosixPath(name).parents) - made
            made |= folders
            if not self._reserve(BLOCK_BYTES * (1 + len(folders))) or not self._export_file(
                executed.step, name, entry, target / name
            ):
                return executed._replace(incomplete_reason=NOT_ALL_CHECKED)
        return (
            executed
            if self._export_commands(executed, target)
            else executed._replace(incomplete_reason=NOT_ALL_CHECKED)
        )

    def _reserve(self, size: int) -> bool:
        self._bytes_left -= size
        return self._bytes_left >= 0

    def _export_file(self, step: int, name: str, entry: Entry, place: Path) -> bool:
        if not _is_checkable(name, entry):
            export_script(self._store, step, name, entry, place)
            return True
        content = self._folder / entry.hash
        if not content.exists():
            if not self._reserve(entry.size):
                return False
            export_script(self._store, step, name, entry, content)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            place.hardlink_to(content)
        except OSError:  # a file has only so many names, and on some disks one
            if not self._reserve(entry.size):
                return False
            export_script(self._store, step, name, entry, place)
        return True

    def _export_commands(self, each: ExecutedScript, target: Path) -> bool:
        """Each command is a module of its own: one that is no Python must not hide the others."""
        modules = [f"{each.module_prefix}{number}" for number in range(len(each.commands))]
        if modules:
            (target / ENTRY_SCRIPT).unlink(missing_ok=True)
            (target / ENTRY_SCRIPT).write_text("".join(f"import {module}\n" for module in modules))
        for module, command in zip(modules, each.commands, strict=True):
            text = command[: MAX_SOURCE_BYTES + 1].encode("utf-8", "backslashreplace")
            if not self._reserve(BLOCK_BYTES + len(text)):
                return False
            (target / f"{module}.py").write_bytes(text)
        return True


def export_script(store: Store, step: int, name: str, entry: Entry, place: Path) -> None:
    """Write a script as it was; of what is not looked at, only what it is."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if entry.kind == "link":
        place.symlink_to(PLACEHOLDER_LINK.target)
    elif _is_checkable(name, entry):
        store.export_entry(step, name, entry, place)
    else:
        with place.open("wb") as file:
            file.truncate(min(entry.size, MAX_SOURCE_BYTES + 1))


def _is_checkable(name: str, entry: Entry) -> bool:
    """Whether its content is looked at: not if it is compiled, a link or too long."""
    return entry.kind == "file" and name.endswith(".py") and entry.size <= MAX_SOURCE_BYTES


def format_violations(
    runs: Iterable[ExecutedScript], sentences: Iterable[Sequence[str]], known: Sequence[str]
) -> Iterator[str]:
    """The violations of earlier scripts with their step; what the submission itself still shows is not said again."""
    heard = set(known)
    for each, found in zip(runs, sentences, strict=True):
        name, told = PurePosixPath(each.script).name, re.compile(rf"^{each.module_prefix}\d+\.py")
        for sentence in (*found, each.incomplete_reason) if each.incomplete_reason else found:
            named = (
                f"{name}{sentence.removeprefix(ENTRY_SCRIPT)}"
                if sentence.startswith(f"{ENTRY_SCRIPT} ")
                else sentence
            )
            named = told.sub(REPL_ACTION, named) if each.commands else named
            if named not in heard:
                heard.add(named)
                yield f"step {each.step}: {named}"
