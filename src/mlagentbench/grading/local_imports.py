"""Which files beside a script it would run by its imports."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

MAX_PACKAGE_DEPTH = 100  # packages within packages; no workspace is deeper
PYCACHE = "__pycache__"  # where Python, as it is started in the sandbox, leaves nothing by itself


class ImportStatement(NamedTuple):
    """An import statement: `from ..module import names`, or, without names, `import module`."""

    line: int
    module: str
    level: int = 0
    names: tuple[str, ...] = ()


def iter_imports(tree: ast.Module) -> Iterator[ImportStatement]:
    """All that a file imports; names after `from x import` may be modules too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (ImportStatement(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield ImportStatement(
                node.lineno, node.module or "", node.level, tuple(alias.name for alias in node.names)
            )


class FolderListing(NamedTuple):
    """A folder: the files that may be a module, by its name, links among them; and the folders."""

    files: dict[str, list[str]]
    folders: set[str]


class LocalModules:
    """What lies in the folders of a submission, each read once: a script may import a million times."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listings: dict[str, FolderListing] = {}

    def files_run_by(self, importer: str, statement: ImportStatement) -> Iterator[str]:
        """The files that an import would run: modules, and the packages that hold them."""
        above = PurePosixPath(importer).parents
        place = str(above[statement.level - 1]) if 0 < statement.level <= len(above) else "."
        for part in (
            statement.module.split(".", MAX_PACKAGE_DEPTH)[:MAX_PACKAGE_DEPTH] if statement.module else ()
        ):
            yield from self._module_files(place, part)
            if part not in self._list_folder(place).folders:
                return
            place = os.path.normpath(f"{place}/{part}")
        for name in set(statement.names):
            yield from self._module_files(place, name)

    def _module_files(self, place: str, module: str) -> Iterator[str]:
        """Whatever Python may take for a module of this name: a cache before its source, a source before the rest."""
        beside, inside = self._list_folder(place), []
        found = beside.files.get(module, [])
        if f"{module}.py" in found:
            found = [name for name in found if not name.endswith(".pyc")]
            if PYCACHE in beside.folders:
                inside += [
                    f"{PYCACHE}/{name}"
                    for name in self._list_folder(f"{place}/{PYCACHE}").files.get(module, [])
                ]
        if module in beside.folders:
            inside += [
                f"{module}/{name}"
                for name in self._list_folder(f"{place}/{module}").files.get("__init__", [])
            ]
        yield from (os.path.normpath(f"{place}/{name}") for name in (*found, *inside))

    def _list_folder(self, place: str) -> FolderListing:
        if place not in self._listings:
            found = self._listings[place] = FolderListing({}, set())
            try:
                with os.scandir(self._root / place) as entries:
                    for entry in entries:
                        module, _, rest = entry.name.partition(".")
                        if entry.is_dir(follow_symlinks=False):
                            found.folders.add(entry.name)
                        elif (
                            rest == "py" or rest.endswith(("pyc", "so")) or (entry.is_symlink() and not rest)
                        ):
                            found.files.setdefault(module, []).append(entry.name)
            except OSError:
                found.files["__init__"] = ["__init__.py"]  # which cannot be read either, and that is said
        return self._listings[place]
