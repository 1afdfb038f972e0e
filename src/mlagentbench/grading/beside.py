"""Which files beside a script it would run by its imports."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

DEEPEST = 100  # packages within packages; no workspace is deeper
CACHE = "__pycache__"  # where Python, as it is started in the sandbox, leaves nothing by itself


class Import(NamedTuple):
    """An import statement: `from ..module import names`, or, without names, `import module`."""

    line: int
    module: str
    level: int = 0
    names: tuple[str, ...] = ()


def imports(tree: ast.Module) -> Iterator[Import]:
    """All that a file imports; names after `from x import` may be modules too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.lineno, node.module or "", node.level, tuple(alias.name for alias in node.names))


class Listing(NamedTuple):
    """A folder: the files that may be a module, by its name, links among them; and the folders."""

    files: dict[str, list[str]]
    folders: set[str]


class Beside:
    """What lies in the folders of a submission, each read once: a script may import a million times."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, Listing] = {}

    def run_by(self, importer: str, each: Import) -> Iterator[str]:
        """The files that an import would run: modules, and the packages that hold them."""
        above = PurePosixPath(importer).parents
        place = str(above[each.level - 1]) if 0 < each.level <= len(above) else "."
        for part in each.module.split(".", DEEPEST)[:DEEPEST] if each.module else ():
            yield from self._module(place, part)
            if part not in self._listing(place).folders:
                return
            place = os.path.normpath(f"{place}/{part}")
        for name in set(each.names):
            yield from self._module(place, name)

    def _module(self, place: str, module: str) -> Iterator[str]:
        """Whatever Python may take for a module of this name: a cache before its source, a source before the rest."""
        beside, inside = self._listing(place), []
        found = beside.files.get(module, [])
        if f"{module}.py" in found:
            found = [name for name in found if not name.endswith(".pyc")]
            if CACHE in beside.folders:
                inside += [f"{CACHE}/{name}" for name in self._listing(f"{place}/{CACHE}").files.get(module, [])]
        if module in beside.folders:
            inside += [f"{module}/{name}" for name in self._listing(f"{place}/{module}").files.get("__init__", [])]
        yield from (os.path.normpath(f"{place}/{name}") for name in (*found, *inside))

    def _listing(self, place: str) -> Listing:
        if place not in self._known:
            found = self._known[place] = Listing({}, set())
            try:
                with os.scandir(self._root / place) as entries:
                    for entry in entries:
                        module, _, rest = entry.name.partition(".")
                        if entry.is_dir(follow_symlinks=False):
                            found.folders.add(entry.name)
                        elif rest == "py" or rest.endswith(("pyc", "so")) or (entry.is_symlink() and not rest):
                            found.files.setdefault(module, []).append(entry.name)
            except OSError:
                found.files["__init__"] = ["__init__.py"]  # which cannot be read either, and that is said
        return self._known[place]
