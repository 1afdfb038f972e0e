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
