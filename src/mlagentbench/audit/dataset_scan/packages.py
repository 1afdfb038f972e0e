"""Loads every data set that the packages of this Python contain."""

import contextlib
import importlib
import inspect
import pkgutil
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from .parts import DATA_SUFFIXES, MAX_FILE_BYTES, DataPart, data_suffix, parts_of, read_file

MODULE_NAMES = ("datasets", "data")
# Functions that download, generate or write data, or are private.
SKIPPED_FUNCTIONS = re.compile(r"_|fetch|make|clear|dump|get_|download|set_")
LOADER_TIMEOUT_S = 10
MIN_FILE_BYTES = 2_000


def package_parts() -> Iterator[DataPart]:
    """What loaders of packages return without a network, and the data files of packages."""
    for module in _dataset_modules():
        for name, function in _find_loaders(module):
            yield from parts_of(_call(function), f"{module.__name__}.{name}")
    for folder in (Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))):
        for path in sorted(folder.rglob("*")):
            is_data = data_suffix(path) in DATA_SUFFIXES and ".dist-info" not in str(path)
            if is_data and path.is_file() and MIN_FILE_BYTES <= path.stat().st_size <= MAX_FILE_BYTES:
                yield from read_file(path, str(path.relative_to(folder)))


def _dataset_modules() -> Iterator[ModuleType]:
    """Modules such as sklearn.datasets; those that name no loader are not imported, which may take long."""
    for package in pkgutil.iter_modules():
        folder = Path(getattr(package.module_finder, "path", ""), package.name)
        for name in MODULE_NAMES:
            sources = [
                path for path in (folder / name / "__init__.py", folder / f"{name}.py") if path.is_file()
            ]
            if sources and re.search(r"\bload_|\bload\b", sources[0].read_text(errors="replace")):
                with contextlib.suppress(Exception, SystemExit):
                    yield importlib.import_module(f"{package.name}.{name}")


def _find_loaders(module: ModuleType) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, value in sorted(vars(module).items()):
        if inspect.ismodule(value) and callable(getattr(value, "load_pandas", None)):
            yield f"{name}.load_pandas", value.load_pandas
        elif inspect.isroutine(value) and not SKIPPED_FUNCTIONS.match(name) and _needs_no_argument(value):
            yield name, value


def _needs_no_argument(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(item.default is not item.empty or item.kind in variadic for item in parameters)


def _call(function: Callable[[], Any]) -> Any:
    """What a loader returns; None if it fails or takes too long."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LOADER_TIMEOUT_S)
    try:
        return function()
    except (Exception, SystemExit):  # noqa: BLE001 - it may need a network, another package, or anything
        return None
    finally:
        signal.alarm(0)
