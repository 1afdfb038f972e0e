"""Tasks are folders of their own: modules of one (a generator.py, say) are not there for the next."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlagentbench.task import BUILTIN_TASKS_DIR


@pytest.fixture(autouse=True, scope="module")
def apart() -> Iterator[None]:
    """Forget what the tests of another task imported, and where from."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    sys.path[:] = [place for place in sys.path if BUILTIN_TASKS_DIR not in Path(place).parents]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and BUILTIN_TASKS_DIR in Path(file).parents:
            del sys.modules[name]
