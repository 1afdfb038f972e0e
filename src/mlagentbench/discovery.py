"""Finds a plugin by its file's name: there is no registry to edit."""

import importlib.util
import inspect
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

from mlagentbench.errors import UsageError

PACKAGE_DIR = Path(__file__).parent
Base = TypeVar("Base")


def plugin_names(room: str) -> list[str]:
    """The plugins of a room, or of a.room.within.one: its modules, less `base`."""
    folder = PACKAGE_DIR.joinpath(*room.split("."))
    return sorted(m.name for m in iter_modules([str(folder)]) if m.name != "base")


def load_plugin(room: str, name: str) -> ModuleType:
    """The module `name` of `room`."""
    if name not in plugin_names(room):
        raise UsageError(f"no {name!r} among the {room}; there are: {', '.join(plugin_names(room))}")
    return import_module(".".join(["mlagentbench", *room.split("/"), name]))


def load_module_from_file(path: Path) -> ModuleType:
    """The module in a file anywhere."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def find_single_subclass(module: ModuleType, base: type[Base]) -> type[Base]:
    """The one subclass of `base` that the module defines; abstract ones, from which others are made, do not count."""
    classes = {
        thing for thing in vars(module).values() if isinstance(thing, type) and not inspect.isabstract(thing)
    }
    found = [kind for kind in classes if issubclass(kind, base) and kind.__module__ == module.__name__]
    if len(found) != 1:
        raise UsageError(f"{module.__file__} must define one {base.__name__}, not {len(found)}")
    return found[0]
