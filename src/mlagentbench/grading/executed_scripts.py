"""Collects what an agent ran before its final submission.

A rule can be broken by a script that no longer exists, or was corrected, when the run ends.
"""

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

MAX_SCRIPTS = 1000  # checked per workspace state
TOO_MANY_SCRIPTS = f"there are more than {MAX_SCRIPTS:,} scripts, and not all were checked"
MAX_SCRIPT_PATH_BYTES = 1000
MAX_EXPORT_BYTES = 256 << 20  # disk space for all earlier states together
BLOCK_BYTES = 4096  # disk space that a file takes at least
PLACEHOLDER_LINK = Entry("link", target="nowhere")  # stands for what cannot be checked
IMPORTABLE_SUFFIXES = (".py", ".pyc", ".so")
ENTRY_SCRIPT = "train.py"  # where rule checks start; another script that ran is exported under this name
REPL_ACTION = "Python REPL"
# A turn of an external program, and what another framework recorded: such a step names no script.
EXTERNAL_ACTIONS = ("Command", "Outside Work")


class ExecutedScript(NamedTuple):
    """A script that ran and changed files, or the commands that an interpreter received."""

    step: int
    script: str
    files: State  # scripts by their path relative to the script's folder, where Python looks for modules
    incomplete_reason: str = ""  # why not all files could be checked
    commands: tuple[str, ...] = ()
    module_prefix: str = ""  # random, or an agent could create a folder with the name of a module

    @property
    def content_key(self) -> tuple[object, ...]:
        """Everything that determines the violations."""
        files = ((name, entry.hash, entry.target) for name, entry in sorted(self.files.items()))
        return self.script, self.commands, *files


def find_scripts(state: State, folder: str = "") -> State:
    """Return what Python could run below a folder, by relative path; too long paths are shortened."""
    below = ((name.removeprefix(folder), entry) for name, entry in state.items() if name.startswith(folder))
    return dict(_shorten_path(name, entry) for name, entry in below if _is_runnable(name, entry))


def has_too_many_scripts(state: State) -> bool:
    """Tell whether there are more scripts than are checked."""
    return len(find_scripts(state)) > MAX_SCRIPTS


def _is_runnable(name: str, entry: Entry) -> bool:
    """Tell whether Python can run it: scripts, compiled files, and links that may lead to a package."""
    may_be_package = entry.kind == "link" and "." not in name.rpartition("/")[2]
    return entry.kind != "folder" and (may_be_package or name.endswith(IMPORTABLE_SUFFIXES))


def _shorten_path(name: str, entry: Entry) -> tuple[str, Entry]:
    """Cut a path that is too long for the host; a placeholder link then stands for the entry."""
    if len(os.fsencode(name)) < MAX_SCRIPT_PATH_BYTES:
        return name, entry
    path = PurePosixPath(name)
    prefixes = (*reversed(path.parents), path)
    too_long = (str(prefix) for prefix in prefixes if len(os.fsencode(prefix)) >= MAX_SCRIPT_PATH_BYTES)
    return next(too_long), PLACEHOLDER_LINK


def find_executed_scripts(store: Store, steps: Sequence[Step], submission: str) -> list[ExecutedScript]:
    """Return what ran and changed a file, up to the last change of the submission; each content once."""
    executing = {
        step.number: step
        for step in steps
        if step.execution or step.call.action in (REPL_ACTION, *EXTERNAL_ACTIONS)
    }
    by_content: dict[tuple[object, ...], ExecutedScript] = {}
    last_change = 0
    for number, before, after, changed in _iter_states(store, len(steps)):
        if submission == "." or submission in changed:
            last_change = number
        if number in executing and changed:
            executed = _executed_at(executing[number], steps, before, after)
            by_content.setdefault(executed.content_key, executed)
    return [executed for executed in by_content.values() if executed.step <= last_change]


def _iter_states(store: Store, last: int) -> Iterator[tuple[int, State, State, set[str]]]:
    """Yield each step that changed anything, with the states before and after it and the changed paths."""
    state: State = {}
    for line in store.manifest_lines():
        before, removed = state, set(line.removed)
        state = {path: entry for path, entry in before.items() if path not in removed} | line.changed
        if 0 < line.step <= last:
            yield line.step, before, state, set(line.changed)


def _executed_at(step: Step, steps: Sequence[Step], before: State, after: State) -> ExecutedScript:
    if step.call.action == REPL_ACTION:
        repl_steps = (earlier for earlier in steps[: step.number] if earlier.call.action == REPL_ACTION)
        commands = [str(earlier.call.args.get("command", "")) for earlier in repl_steps]
        files, incomplete_reason = _scripts_below(before)
        return ExecutedScript(
            step=step.number,
            script=REPL_ACTION,
            files=files,
            incomplete_reason=TOO_MANY_SCRIPTS if len(commands) > MAX_SCRIPTS else incomplete_reason,
            commands=tuple(commands[-MAX_SCRIPTS:]),
            module_prefix=f"command_{secrets.token_hex(8)}_",
        )
    script = _script_path(step)
    if not script:
        # An external program may run what it writes in the same turn, so the state after it is checked.
        return ExecutedScript(step.number, ENTRY_SCRIPT, *_scripts_below(after))
    folder, _, name = script.rpartition("/")
    return ExecutedScript(step.number, script, *_scripts_below(before, f"{folder}/" if folder else "", name))


def _script_path(step: Step) -> str:
    """Return the script that a step ran, if its record names one."""
    try:
        return normalize_path(str(step.call.args.get("script_name", "")))
    except ActionError:
        return ""


def _scripts_below(state: State, folder: str = "", started: str = ENTRY_SCRIPT) -> tuple[State, str]:
    """Return the scripts below a folder, `started` as ENTRY_SCRIPT; and a message if some are left out."""
    scripts = find_scripts(state, folder)
    first = {ENTRY_SCRIPT: entry} if (entry := scripts.get(started) or scripts.get(ENTRY_SCRIPT)) else {}
    others = (
        (name, entry)
        for name, entry in scripts.items()
        if name != ENTRY_SCRIPT and not name.startswith(f"{ENTRY_SCRIPT}/")
    )
    return first | dict(islice(others, MAX_SCRIPTS)), TOO_MANY_SCRIPTS if len(scripts) > MAX_SCRIPTS else ""


class ScriptExporter:
    """Writes executed scripts to folders. Content that states share is written once, within a disk budget."""

    def __init__(self, store: Store, folder: Path, max_bytes: int = MAX_EXPORT_BYTES) -> None:
        self._store, self._folder, self._bytes_left = store, folder, max_bytes
        folder.mkdir()

    def export(self, executed: ExecutedScript, target: Path) -> ExecutedScript:
        """Write the scripts as they were when they ran; the result says so if the budget was exceeded."""
        target.mkdir()
        created: set[PurePosixPath] = set()
        for name, entry in executed.files.items():
            folders = set(PurePosixPath(name).parents) - created
            created |= folders
            fits = self._reserve(BLOCK_BYTES * (1 + len(folders)))
            if not fits or not self._export_file(executed.step, name, entry, target / name):
                return executed._replace(incomplete_reason=NOT_ALL_CHECKED)
        if not self._export_commands(executed, target):
            return executed._replace(incomplete_reason=NOT_ALL_CHECKED)
        return executed

    def _reserve(self, size: int) -> bool:
        self._bytes_left -= size
        return self._bytes_left >= 0

    def _export_file(self, step: int, name: str, entry: Entry, target: Path) -> bool:
        if not _is_checkable(name, entry):
            export_script(self._store, step, name, entry, target)
            return True
        content = self._folder / entry.hash
        if not content.exists():
            if not self._reserve(entry.size):
                return False
            export_script(self._store, step, name, entry, content)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.hardlink_to(content)
        except OSError:  # file systems limit the number of hard links; some allow none
            if not self._reserve(entry.size):
                return False
            export_script(self._store, step, name, entry, target)
        return True

    def _export_commands(self, executed: ExecutedScript, target: Path) -> bool:
        """Write each command as its own module: one that is not valid Python must not hide the others."""
        modules = [f"{executed.module_prefix}{number}" for number in range(len(executed.commands))]
        if modules:
            (target / ENTRY_SCRIPT).unlink(missing_ok=True)
            (target / ENTRY_SCRIPT).write_text("".join(f"import {module}\n" for module in modules))
        for module, command in zip(modules, executed.commands, strict=True):
            text = command[: MAX_SOURCE_BYTES + 1].encode("utf-8", "backslashreplace")
            if not self._reserve(BLOCK_BYTES + len(text)):
                return False
            (target / f"{module}.py").write_bytes(text)
        return True


def export_script(store: Store, step: int, name: str, entry: Entry, target: Path) -> None:
    """Write a script as it was at a step; what cannot be checked gets a placeholder of the same kind."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if entry.kind == "link":
        target.symlink_to(PLACEHOLDER_LINK.target)
    elif _is_checkable(name, entry):
        store.export_entry(step, name, entry, target)
    else:
        with target.open("wb") as file:
            file.truncate(min(entry.size, MAX_SOURCE_BYTES + 1))


def _is_checkable(name: str, entry: Entry) -> bool:
    """Tell whether the content is checked: not if it is compiled, a link or too long."""
    return entry.kind == "file" and name.endswith(".py") and entry.size <= MAX_SOURCE_BYTES


def format_violations(
    scripts: Iterable[ExecutedScript], violations: Iterable[Sequence[str]], reported: Sequence[str]
) -> Iterator[str]:
    """Yield the violations of earlier scripts with their step, except those that were already reported."""
    seen = set(reported)
    for executed, messages in zip(scripts, violations, strict=True):
        name = PurePosixPath(executed.script).name
        command_module = re.compile(rf"^{executed.module_prefix}\d+\.py")
        for message in (*messages, executed.incomplete_reason) if executed.incomplete_reason else messages:
            text = message
            if text.startswith(f"{ENTRY_SCRIPT} "):
                text = f"{name}{text.removeprefix(ENTRY_SCRIPT)}"
            if executed.commands:
                text = command_module.sub(REPL_ACTION, text)
            if text not in seen:
                seen.add(text)
                yield f"step {executed.step}: {text}"
