"""Finds plugins: modules of this package by file name, and those of other packages by entry point.

There is no registry to edit. A file `agents/my_agent.py` is the agent `my-agent`. An installed package adds
one with an entry point in the group `mlagentbench.agents` (or `.tasks`, `.actions`, `.models`, `.sandboxes`):

    [project.entry-points."mlagentbench.agents"]
    my-agent = "my_package.my_agent"

The value is a module, or `module:object` for a class, function or folder in it.
"""

import importlib.util
import inspect
import sys
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, TypeVar

from mlagentbench.errors import UsageError

PACKAGE_DIR = Path(__file__).parent
T = TypeVar("T")


def builtin_names(package: str) -> list[str]:
    """The plugins in one of our packages, such as `agents` or `audit.attacks`: its modules except `base`.

    Agents are named on the command line, where words are joined with dashes.
    """
    folder = PACKAGE_DIR.joinpath(*package.split("."))
    if not folder.is_dir():  # a kind that only other packages provide
        return []
    modules = (module.name for module in iter_modules([str(folder)]) if not module.ispkg)
    names = (name.replace("_", "-") if package == "agents" else name for name in modules)
    return sorted(name for name in names if name != "base")


@cache
def installed_plugins(kind: str) -> dict[str, EntryPoint]:
    """The plugins of other installed packages, by name; `kind` is the end of their entry-point group."""
    return {point.name: point for point in entry_points(group=f"mlagentbench.{kind}")}


def plugin_names(package: str) -> list[str]:
    """All plugins of a kind. A plugin of another package cannot replace one of ours."""
    return sorted({*builtin_names(package), *installed_plugins(package)})


def load_plugin(package: str, name: str) -> Any:
    """Load the plugin `name`: a module of ours, or whatever the entry point of another package refers to.

    Raises:
        UsageError: There is no such plugin, or another package's plugin cannot be imported.
    """
    if name in builtin_names(package):
        return import_module(f"mlagentbench.{package}.{name.replace('-', '_')}")
    if name in installed_plugins(package):
        return load_entry_point(installed_plugins(package)[name])
    raise UsageError(f"No {name!r} in {package}. Available: {', '.join(plugin_names(package))}.")


def load_entry_point(point: EntryPoint) -> Any:
    """Load what an entry point refers to; an error of the other package is one line."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"The plugin {point.name} ({point.value}) cannot be imported: {type(error).__name__}: {error}"
        ) from error


def load_class(package: str, name: str, base: type[T]) -> type[T]:
    """Load the class of plugin `name`: the only subclass of `base` in its module, or the class it refers to.

    Raises:
        UsageError: The plugin does not exist or is not a subclass of `base`.
    """
    plugin = load_plugin(package, name)
    if isinstance(plugin, ModuleType):
        return find_single_subclass(plugin, base)
    if isinstance(plugin, type) and issubclass(plugin, base):
        return plugin
    raise UsageError(f"The plugin {name} must be a module or a subclass of {base.__name__}, not {plugin!r}.")


class _LoaderWithoutBytecode(SourceFileLoader):
    """Leaves no __pycache__ next to a file of a user or a task."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0) -> None:
        pass


def load_module_from_file(path: Path) -> ModuleType:
    """Import a Python file from anywhere on disk.

    Raises:
        UsageError: The file does not exist or cannot be imported.
    """
    if not path.is_file():
        raise UsageError(f"No such file: {path}")
    name = f"plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file.")
    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = _LoaderWithoutBytecode(name, str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def find_single_subclass(module: ModuleType, base: type[T]) -> type[T]:
    """Find the one concrete subclass of `base` that the module itself defines.

    Raises:
        UsageError: The module defines none, or several.
    """
    classes = {
        value for value in vars(module).values() if isinstance(value, type) and not inspect.isabstract(value)
    }
    subclasses = [cls for cls in classes if issubclass(cls, base) and cls.__module__ == module.__name__]
    if len(subclasses) != 1:
        raise UsageError(
            f"{module.__file__} must define exactly one {base.__name__}, but defines {len(subclasses)}."
        )
    return subclasses[0]
