"""Checks an agent's scripts against a task's rules. The scripts are parsed, never run."""

import ast
import io
import re
import stat
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mlagentbench.grading.local_imports import LocalModules, iter_imports
from mlagentbench.grading.named_numbers import iter_named_numbers

MAX_SOURCE_BYTES = 1 << 20  # per source file
# For a script and all that it imports: checking more would take longer than grading may.
MAX_TOTAL_SOURCE_BYTES = 2 * MAX_SOURCE_BYTES
MAX_NAME_CHARS = 200  # of a name in a message
NOT_ALL_CHECKED = "not all scripts could be checked"
EMPTY_MODULE = ast.Module([], [])
REASON_COMPILED, REASON_LINK = "it is compiled", "it is reached through a link"


class Script(NamedTuple):
    """A file that Python would run, with its syntax tree.

    `unchecked_reason` says why it could not be parsed: Python also runs files that are too long or too deeply
    nested for this check, or behind a link.
    """

    name: str
    tree: ast.Module
    unchecked_reason: str = ""

    @property
    def unchecked_violations(self) -> list[str]:
        """One message if the script could not be checked, otherwise none."""
        if not self.unchecked_reason:
            return []
        return [f"{self.name[:MAX_NAME_CHARS]} cannot be checked: {self.unchecked_reason}"]


def forbidden_imports(folder: Path, start: str, forbidden: Sequence[str]) -> list[str]:
    """Find imports that a task's rules forbid, in a script and in the local modules that it imports.

    Args:
        folder: The folder with the agent's scripts, as `violations` receives it.
        start: The script that is checked first, relative to `folder`.
        forbidden: Top-level package names, for example `("torch", "scipy")`.

    Returns:
        One message per forbidden import, and one per file that runs but cannot be checked.
    """
    messages = []
    for script in _iter_scripts(folder, start):
        messages += script.unchecked_violations
        for statement in iter_imports(script.tree):
            if not statement.level and statement.module.partition(".")[0] in forbidden:
                module = statement.module[:MAX_NAME_CHARS]
                names = [f"{module}.{name[:MAX_NAME_CHARS]}" for name in statement.names] or [module]
                messages += [f"{script.name} line {statement.line} imports {name}" for name in names]
    return messages


def numbers_above(folder: Path, start: str, names: str, limit: float) -> list[str]:
    """Find numbers above a limit that a script, or a local module that it imports, gives to a matching name.

    Assignments, keyword arguments, parameter defaults, dictionary keys, command-line defaults and loops over
    `range` are covered. Arithmetic on constants is evaluated.

    Args:
        folder: The folder with the agent's scripts, as `violations` receives it.
        start: The script that is checked first, relative to `folder`.
        names: A regular expression, searched in names without regard to case.
        limit: The largest number that is allowed.

    Returns:
        One message per number above `limit`, and one per file that runs but cannot be checked.
    """
    messages, pattern = [], re.compile(names, re.IGNORECASE)
    for script in _iter_scripts(folder, start):
        messages += script.unchecked_violations
        for line, name, number in iter_named_numbers(script.tree, pattern):
            if number > limit:
                setting = f"{script.name} line {line} sets {name[:MAX_NAME_CHARS]} to {number:g}"
                messages.append(f"{setting}; at most {limit:g} is allowed")
    return messages


def _iter_scripts(folder: Path, start: str) -> Iterator[Script]:
    """Yield `start` and then the local files that it imports, directly or not; skip files that cannot run."""
    modules = LocalModules(folder)
    pending, seen, bytes_left = [start], {start}, MAX_TOTAL_SOURCE_BYTES
    while pending:
        name = pending.pop()
        source = b""
        try:
            source = _read_source(folder, name)
            bytes_left -= len(source)
            if bytes_left < 0:
                reason = f"it and the files checked before it exceed {MAX_TOTAL_SOURCE_BYTES:,} bytes"
                yield Script(name, EMPTY_MODULE, reason)
                return
            with warnings.catch_warnings(action="ignore"):
                script = Script(name, ast.parse(source))
        except FileNotFoundError:
            continue
        except (SyntaxError, ValueError):
            if not _is_compiled_or_archive(source):
                continue
            script = Script(name, EMPTY_MODULE, REASON_COMPILED)
        except (RecursionError, MemoryError):
            script = Script(name, EMPTY_MODULE, "it is nested too deeply")
        except OSError as error:
            script = Script(name, EMPTY_MODULE, error.strerror or str(error))
        yield script
        for statement in iter_imports(script.tree):
            imported = {file for file in modules.files_run_by(name, statement) if file not in seen}
            seen |= imported
            pending += sorted(imported)


def _is_compiled_or_archive(source: bytes) -> bool:
    """Tell whether Python would run this although it is not text: bytecode or a zip archive."""
    return source[2:4] == b"\r\n" or zipfile.is_zipfile(io.BytesIO(source))


def _read_source(folder: Path, name: str) -> bytes:
    """Read a source file of the submission, up to a size limit; links are not followed."""
    path = folder / name
    parts = (part for part in (path, *path.parents) if part.is_relative_to(folder) and part != folder)
    if any(part.is_symlink() for part in parts):
        raise OSError(REASON_LINK)
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{name} is not a regular file and cannot run")
    if not name.endswith(".py"):
        raise OSError(REASON_COMPILED)
    if status.st_size > MAX_SOURCE_BYTES:
        raise OSError(f"it is longer than {MAX_SOURCE_BYTES:,} bytes")
    return path.read_bytes()
