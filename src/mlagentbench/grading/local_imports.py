"""Resolves a script's imports to the files of the submission that Python would run for them."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

MAX_PACKAGE_DEPTH = 100  # nested packages; no workspace is deeper
PYCACHE = "__pycache__"  # Python in the sandbox does not write it, so what is there comes from the agent
IMPORTABLE_ENDINGS = ("pyc", "so")


class ImportStatement(NamedTuple):
    """An import statement: `from ..module import names`, or, without names, `import module`."""

    line: int
    module: str
    level: int = 0
    names: tuple[str, ...] = ()


def iter_imports(tree: ast.Module) -> Iterator[ImportStatement]:
    """Yield all import statements of a file; names after `from x import` may be modules too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (ImportStatement(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield ImportStatement(node.lineno, node.module or "", node.level, names)


class FolderListing(NamedTuple):
    """The content of a folder: files and links that may be modules, by module name; and the subfolders."""

    files: dict[str, list[str]]
    folders: set[str]


class LocalModules:
    """The modules in a submission's folders; each folder is read once, however many imports there are."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listings: dict[str, FolderListing] = {}

    def files_run_by(self, importer: str, statement: ImportStatement) -> Iterator[str]:
        """Yield the files that an import would run: modules, and the packages that contain them."""
        parents = PurePosixPath(importer).parents
        folder = str(parents[statement.level - 1]) if 0 < statement.level <= len(parents) else "."
        parts = statement.module.split(".", MAX_PACKAGE_DEPTH)[:MAX_PACKAGE_DEPTH] if statement.module else ()
        for part in parts:
            yield from self._module_files(folder, part)
            if part not in self._list_folder(folder).folders:
                return
            folder = os.path.normpath(f"{folder}/{part}")
        for name in set(statement.names):
            yield from self._module_files(folder, name)

    def _module_files(self, folder: str, module: str) -> Iterator[str]:
        """Yield the files that Python may load as this module.

        Python prefers the cached bytecode of a source file to the file, and the source file to anything else.
        """
        listing = self._list_folder(folder)
        files = listing.files.get(module, [])
        nested: list[str] = []
        if f"{module}.py" in files:
            files = [name for name in files if not name.endswith(".pyc")]
            if PYCACHE in listing.folders:
                cached = self._list_folder(f"{folder}/{PYCACHE}").files.get(module, [])
                nested += [f"{PYCACHE}/{name}" for name in cached]
        if module in listing.folders:
            inits = self._list_folder(f"{folder}/{module}").files.get("__init__", [])
            nested += [f"{module}/{name}" for name in inits]
        yield from (os.path.normpath(f"{folder}/{name}") for name in (*files, *nested))

    def _list_folder(self, folder: str) -> FolderListing:
        if folder not in self._listings:
            listing = self._listings[folder] = FolderListing({}, set())
            try:
                with os.scandir(self._root / folder) as entries:
                    for entry in entries:
                        module, _, suffix = entry.name.partition(".")
                        if entry.is_dir(follow_symlinks=False):
                            listing.folders.add(entry.name)
                        elif (
                            suffix == "py"
                            or suffix.endswith(IMPORTABLE_ENDINGS)
                            or (entry.is_symlink() and not suffix)
                        ):
                            listing.files.setdefault(module, []).append(entry.name)
            except OSError:
                # An unreadable folder is reported through a file in it, which cannot be read either.
                listing.files["__init__"] = ["__init__.py"]
        return self._listings[folder]
