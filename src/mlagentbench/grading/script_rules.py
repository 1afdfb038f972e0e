"""Looks for what is against a task's rules in the scripts that an agent left; reads them, and never runs them."""

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

MAX_SOURCE_BYTES = 1 << 20  # bytes of a source file, at most
MAX_TOTAL_SOURCE_BYTES = (
    2 * MAX_SOURCE_BYTES
)  # of a script and all that it imports: more would take longer to look at than a grading may
MAX_NAME_CHARS = 200  # characters of a name in a sentence
NOT_ALL_CHECKED = "not all scripts could be looked at"
EMPTY_MODULE = ast.Module([], [])
REASON_COMPILED, REASON_LINK = "it is compiled", "it is reached through a link"


class Script(NamedTuple):
    """A file that would run; if it cannot be looked at, why: Python runs what is longer, deeper, or behind a link."""

    name: str
    tree: ast.Module
    unchecked_reason: str = ""

    @property
    def unchecked_violations(self) -> list[str]:
        """The sentence that says so."""
        return (
            [f"{self.name[:MAX_NAME_CHARS]} cannot be looked at: {self.unchecked_reason}"]
            if self.unchecked_reason
            else []
        )


def forbidden_imports(folder: Path, start: str, forbidden: Sequence[str]) -> list[str]:
    """Sentences on what `start`, and the modules beside it that it imports, import against the rules."""
    found = []
    for script in _iter_scripts(folder, start):
        found += script.unchecked_violations
        for each in iter_imports(script.tree):
            if not each.level and each.module.partition(".")[0] in forbidden:
                shown = each.module[:MAX_NAME_CHARS]
                names = [f"{shown}.{name[:MAX_NAME_CHARS]}" for name in each.names] or [shown]
                found += [f"{script.name} line {each.line} imports {name}" for name in names]
    return found


def numbers_above(folder: Path, start: str, names: str, most: float) -> list[str]:
    """Sentences on where these scripts give a number over `most` to a name that matches, or pass it by that name."""
    found, wanted = [], re.compile(names, re.IGNORECASE)
    for script in _iter_scripts(folder, start):
        found += script.unchecked_violations
        found += [
            f"{script.name} line {line} sets {called[:MAX_NAME_CHARS]} to {number:g}; at most {most:g} is allowed"
            for line, called, number in iter_named_numbers(script.tree, wanted)
            if number > most
        ]
    return found


def _iter_scripts(folder: Path, start: str) -> Iterator[Script]:
    """`start` and, one after another, the files beside it that it imports; what cannot run is passed over."""
    beside = LocalModules(folder)
    todo, seen, left = [start], {start}, MAX_TOTAL_SOURCE_BYTES
    while todo:
        name = todo.pop()
        source = b""
        try:
            source = _read_source(folder, name)
            left -= len(source)
            if left < 0:
                yield Script(
                    name,
                    EMPTY_MODULE,
                    f"it and what was looked at before are over {MAX_TOTAL_SOURCE_BYTES:,} bytes",
                )
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
            script = Script(name, EMPTY_MODULE, "it is nested too deep")
        except OSError as error:
            script = Script(name, EMPTY_MODULE, error.strerror or str(error))
        yield script
        for each in iter_imports(script.tree):
            found = {file for file in beside.files_run_by(name, each) if file not in seen}
            seen |= found
            todo += sorted(found)


def _is_compiled_or_archive(source: bytes) -> bool:
    """Whether Python would run this though it is no text: compiled code, of whatever version, or an archive."""
    return source[2:4] == b"\r\n" or zipfile.is_zipfile(io.BytesIO(source))


def _read_source(folder: Path, name: str) -> bytes:
    """A file of the submission, of a reasonable size; a link, which could lead anywhere, is not followed."""
    path = folder / name
    if any(
        part.is_symlink() for part in (path, *path.parents) if part.is_relative_to(folder) and part != folder
    ):
        raise OSError(REASON_LINK)
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{name} is no file, and cannot run")
    if not name.endswith(".py"):
        raise OSError(REASON_COMPILED)
    if status.st_size > MAX_SOURCE_BYTES:
        raise OSError(f"it is longer than {MAX_SOURCE_BYTES:,} bytes")
    return path.read_bytes()
