"""Modules that a starter or a solution imports are in its folder, in the standard library or installed."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlagentbench.records import STARTS
from mlagentbench.task import Task

# What the runtimes install for scripts; the packages that these need are nobody's to import.
INSTALLED = {"numpy", "pandas", "scipy", "sklearn", "lightgbm", "torch", "transformers"}


def imported_names(script: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", Task.builtin_names())
def test_every_imported_module_exists(name: str, start: str) -> None:
    task = Task.load(name)
    folders = [task.starter] if start == "starter" else [task.starter, task.solution(start)]
    available = {path.stem for folder in folders for path in folder.iterdir()} | INSTALLED
    scripts = list(folders[-1].rglob("*.py"))
    missing = {
        (script.name, imported)
        for script in scripts
        for imported in imported_names(script)
        if imported not in available and imported not in sys.stdlib_module_names
    }
    assert scripts and not missing
