"""Rules about imports: layers, heavy packages, tasks and agents."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "mlagentbench"

# A package or module may import only from those on later lines, and from itself.
LAYERS = [
    {"__main__"},
    {"cli", "api"},
    {"terminal", "adapters"},
    {"pages"},
    {"process"},
    {"analysis"},
    {"bundles"},
    {"authoring"},
    {"audit"},
    {"runner"},
    {"agents", "grading"},
    {"environment"},
    {"actions"},
    {"environment.context"},
    {"endpoint"},
    {"environment.model_calls"},
    {"models", "language"},
    {"providers"},
    {"sandbox"},
    {"workspace"},
    {"runtimes", "preparation"},
    {"task"},
    {"discovery"},
    {"system"},
    {"formatting"},
    {"levels"},
    {"records"},
    {"errors"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = [p for p in SRC.rglob("*.py") if "tasks" not in p.parts and p.name != "__init__.py"]
HEAVY = {"numpy", "pandas", "scipy", "rich", "sklearn", "matplotlib", "jinja2"}


def layer_of(module: str) -> str:
    """The layer that a dotted module name, without the package, belongs to."""
    parts = module.split(".")
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in LEVEL), parts[0])


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts)


def imported_names(path: Path, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    names = set()
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_layers(path: Path) -> set[str]:
    return {
        layer_of(name.removeprefix("mlagentbench."))
        for name in imported_names(path)
        if name.startswith("mlagentbench.")
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_down(path):
    own = layer_of(module_of(path))
    for layer in imported_layers(path) & LEVEL.keys() - {own}:
        assert LEVEL[own] < LEVEL[layer], f"{own} must not import {layer}"


def test_every_module_belongs_to_a_layer():
    assert {layer_of(module_of(path)) for path in MODULES} <= LEVEL.keys()


def test_the_package_root_has_at_most_ten_modules():
    assert len(list(SRC.glob("*.py"))) <= 10


@pytest.mark.parametrize("path", list(SRC.glob("tasks/*/*.py")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_task_imports_only_the_grading_checks_of_this_package(path):
    names = {name for name in imported_names(path) if name.startswith("mlagentbench")}
    assert all(name.startswith("mlagentbench.grading.checks") for name in names)


@pytest.mark.parametrize(
    "name",
    ["cli/app", "cli/batch", "cli/reports", "task", "records", "discovery", "system/cache", "terminal/lists"],
)
def test_modules_that_every_command_loads_import_no_heavy_packages(name):
    assert (
        not {module.split(".")[0] for module in imported_names(SRC / f"{name}.py", top_level_only=True)}
        & HEAVY
    )


@pytest.mark.parametrize("path", list((SRC / "agents").glob("*.py")), ids=lambda p: p.name)
def test_no_agent_imports_grading(path):
    assert "grading" not in imported_layers(path)


# Plugins are found by file name, and programs run alone inside a sandbox: their names need not be unique.
SEPARATE_NAMESPACES = (
    "tasks",
    "audit/attacks",
    "authoring/templates",
    "process/rules",
    "adapters",
    "sandbox/programs",
)
SHARED_NAMES = {
    "main",  # the entry point of each program
    "run",  # a command and the API function that it mirrors
    "resume",  # likewise
    "grade",  # a command and the function behind it
    "compare",  # likewise
    "Baseline",  # the record, and the agent `baseline`
}


def public_names(path: Path) -> set[str]:
    """The public classes and functions of a module, except actions, which are named as their file."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, definitions)}
    return {
        name
        for name in names
        if not name.startswith("_") and (path.parent.name, name) != ("actions", path.stem)
    }


def test_no_two_public_classes_or_functions_share_a_name():
    modules_by_name: dict[str, list[str]] = {}
    for path in MODULES:
        if not path.relative_to(SRC).as_posix().startswith(SEPARATE_NAMESPACES):
            for name in public_names(path):
                modules_by_name.setdefault(name, []).append(module_of(path))
    repeated = {name: modules for name, modules in modules_by_name.items() if len(modules) > 1}
    assert {name: modules for name, modules in repeated.items() if name not in SHARED_NAMES} == {}
    assert repeated.keys() >= SHARED_NAMES, "remove names from SHARED_NAMES that are unique now"
