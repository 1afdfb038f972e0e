"""Isolates the tests of tasks: the modules of one task must not be visible to the next."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlagentbench.task import BUILTIN_TASKS_DIR


@pytest.fixture(autouse=True, scope="module")
def isolated_task_modules() -> Iterator[None]:
    """Unload the task modules that other tests imported, and remove task folders from sys.path."""
    _unload_task_modules()
    yield
    _unload_task_modules()


def _unload_task_modules() -> None:
    sys.path[:] = [entry for entry in sys.path if BUILTIN_TASKS_DIR not in Path(entry).parents]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and BUILTIN_TASKS_DIR in Path(file).parents:
            del sys.modules[name]
