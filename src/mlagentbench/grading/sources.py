"""Looks for what is against a task's rules in the scripts that an agent left; reads them, and never runs them."""

import ast
import math
import os
import re
import stat
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = 1 << 20  # bytes of a source file, at most
DEEPEST = 100  # packages within packages; no workspace is deeper
TOGETHER = 2 * SOURCE  # of a script and all that it imports: more would take longer to look at than a grading may
NOTHING = ast.Module([], [])


class Script(NamedTuple):
    """A file that would run; if it cannot be looked at, why: Python runs what is longer, deeper, or behind a link."""

    name: str
    tree: ast.Module
    why: str = ""

    @property
    def unseen(self) -> list[str]:
        """The sentence that says so."""
        return [f"{self.name} cannot be looked at: {self.why}"] if self.why else []


def forbidden_imports(folder: Path, start: str, forbidden: Sequence[str]) -> list[str]:
    """Sentences on what `start`, and the modules beside it that it imports, import against the rules."""
    found = []
    for script in _scripts(folder, start):
        imported = ((line, name) for line, name in _imports(script.tree) if name.split(".")[0] in forbidden)
        found += [*script.unseen, *(f"{script.name} line {line} imports {name}" for line, name in imported)]
    return found


def numbers_above(folder: Path, start: str, names: str, most: float) -> list[str]:
    """Sentences on where these scripts give a number over `most` to a name that matches, or pass it by that name."""
    found = []
    for script in _scripts(folder, start):
        over = (each for each in _numbers(script.tree) if each[2] > most and re.search(names, each[1], re.IGNORECASE))
        found += script.unseen
        found += [
            f"{script.name} line {line} sets {called} to {number:g}; at most {most:g} is allowed"
            for line, called, number in over
        ]
    return found


def _scripts(folder: Path, start: str) -> Iterator[Script]:
    """`start` and, one after another, the files beside it that it imports; what cannot run is passed over."""
    todo, seen, left = [start], {start}, TOGETHER
    while todo:
        name = todo.pop()
        if not os.path.lexists(folder / name):
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                source = _source(folder, name)
                left -= len(source)
                if left < 0:
                    yield Script(name, NOTHING, f"it and what was looked at before are over {TOGETHER:,} bytes")
                    return
                script = Script(name, ast.parse(source))
        except (SyntaxError, ValueError):
            continue
        except (RecursionError, MemoryError):
            script = Script(name, NOTHING, "it is nested too deep")
        except OSError as error:
            script = Script(name, NOTHING, str(error))
        yield script
        for _, module in _imports(script.tree):
            beside = {file for file in _files(name, module) if os.path.lexists(folder / file)} - seen
            seen |= beside
            todo += sorted(beside)


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the name of every module that a file imports; names after `from x import` may be modules too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            yield from (
                (node.lineno, f"{start}.{alias.name}" if node.module else start + alias.name) for alias in node.names
            )


def _numbers(tree: ast.Module) -> Iterator[tuple[int, str, float]]:
    """The line, the name and the value of every number that has a name; sums and the like are worked out."""
    for node in ast.walk(tree):
        named: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.Assign):
            for target in node.targets:
                named += _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            named += _pairs(node.target, node.value)
        elif isinstance(node, ast.keyword):
            named.append((node.arg or "", node.value))
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and node.iter.args:
            named += _pairs(node.target, _rounds(node.iter.args))
        for called, value in named:
            try:
                number = _value(value)
            except RecursionError:
                number = None
            if number is not None:
                yield getattr(node, "lineno", 0), called, number


def _rounds(args: list[ast.expr]) -> ast.expr:
    """How often range(...) goes round, if its steps are of one."""
    return ast.BinOp(args[1], ast.Sub(), args[0]) if len(args) > 1 else args[0]


def _pairs(target: ast.expr, value: ast.expr | None) -> list[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [pair for each in zip(target.elts, value.elts, strict=True) for pair in _pairs(*each)]
    name = {ast.Name: "id", ast.Attribute: "attr"}.get(type(target))
    return [(getattr(target, name), value)] if name else []


def _value(node: ast.expr | None) -> float | None:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
        left, right = _value(node.left), _value(node.right)
        if left is not None and right is not None:
            return {ast.Add: left + right, ast.Sub: left - right}.get(type(node.op), left * right)
    return None


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _source(folder: Path, name: str) -> bytes:
    """A file of the submission, of a reasonable size; a link, which could lead anywhere, is not followed."""
    path = folder / name
    if any(part.is_symlink() for part in (path, *path.parents) if part.is_relative_to(folder) and part != folder):
        raise OSError("it is reached through a link")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{name} is no file, and cannot run")
    if status.st_size > SOURCE:
        raise OSError(f"it is longer than {SOURCE:,} bytes")
    return path.read_bytes()


def _files(importer: str, module: str) -> Iterator[str]:
    """Where, below the submission's folder, the module or the packages that hold it would lie."""
    dots = len(module) - len(module.lstrip("."))
    base = Path(importer).parents[dots - 1] if 0 < dots <= len(Path(importer).parents) else Path()
    parts = module.lstrip(".").split(".")[:DEEPEST]
    for count in range(1, len(parts) + 1):
        place = base.joinpath(*parts[:count])
        yield from (f"{place}.py", f"{place}/__init__.py")
