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

from mlagentbench.grading.beside import Beside, imports
from mlagentbench.grading.literals import numbers

SOURCE = 1 << 20  # bytes of a source file, at most
TOGETHER = 2 * SOURCE  # of a script and all that it imports: more would take longer to look at than a grading may
SHOWN = 200  # characters of a name in a sentence
UNSEEN = "not all scripts could be looked at"
NOTHING = ast.Module([], [])
COMPILED, LINKED = "it is compiled", "it is reached through a link"


class Script(NamedTuple):
    """A file that would run; if it cannot be looked at, why: Python runs what is longer, deeper, or behind a link."""

    name: str
    tree: ast.Module
    why: str = ""

    @property
    def unseen(self) -> list[str]:
        """The sentence that says so."""
        return [f"{self.name[:SHOWN]} cannot be looked at: {self.why}"] if self.why else []


def forbidden_imports(folder: Path, start: str, forbidden: Sequence[str]) -> list[str]:
    """Sentences on what `start`, and the modules beside it that it imports, import against the rules."""
    found = []
    for script in _scripts(folder, start):
        found += script.unseen
        for each in imports(script.tree):
            if not each.level and each.module.partition(".")[0] in forbidden:
                shown = each.module[:SHOWN]
                names = [f"{shown}.{name[:SHOWN]}" for name in each.names] or [shown]
                found += [f"{script.name} line {each.line} imports {name}" for name in names]
    return found


def numbers_above(folder: Path, start: str, names: str, most: float) -> list[str]:
    """Sentences on where these scripts give a number over `most` to a name that matches, or pass it by that name."""
    found, wanted = [], re.compile(names, re.IGNORECASE)
    for script in _scripts(folder, start):
        found += script.unseen
        found += [
            f"{script.name} line {line} sets {called[:SHOWN]} to {number:g}; at most {most:g} is allowed"
            for line, called, number in numbers(script.tree, wanted)
            if number > most
        ]
    return found


def _scripts(folder: Path, start: str) -> Iterator[Script]:
    """`start` and, one after another, the files beside it that it imports; what cannot run is passed over."""
    beside = Beside(folder)
    todo, seen, left = [start], {start}, TOGETHER
    while todo:
        name = todo.pop()
        source = b""
        try:
            source = _source(folder, name)
            left -= len(source)
            if left < 0:
                yield Script(name, NOTHING, f"it and what was looked at before are over {TOGETHER:,} bytes")
                return
            with warnings.catch_warnings(action="ignore"):
                script = Script(name, ast.parse(source))
        except FileNotFoundError:
            continue
        except (SyntaxError, ValueError):
            if not _is_packed(source):
                continue
            script = Script(name, NOTHING, COMPILED)
        except (RecursionError, MemoryError):
            script = Script(name, NOTHING, "it is nested too deep")
        except OSError as error:
            script = Script(name, NOTHING, error.strerror or str(error))
        yield script
        for each in imports(script.tree):
            found = {file for file in beside.run_by(name, each) if file not in seen}
            seen |= found
            todo += sorted(found)


def _is_packed(source: bytes) -> bool:
    """Whether Python would run this though it is no text: compiled code, of whatever version, or an archive."""
    return source[2:4] == b"\r\n" or zipfile.is_zipfile(io.BytesIO(source))


def _source(folder: Path, name: str) -> bytes:
    """A file of the submission, of a reasonable size; a link, which could lead anywhere, is not followed."""
    path = folder / name
    if any(part.is_symlink() for part in (path, *path.parents) if part.is_relative_to(folder) and part != folder):
        raise OSError(LINKED)
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{name} is no file, and cannot run")
    if not name.endswith(".py"):
        raise OSError(COMPILED)
    if status.st_size > SOURCE:
        raise OSError(f"it is longer than {SOURCE:,} bytes")
    return path.read_bytes()
