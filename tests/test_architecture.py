"""The house rules that a machine can check."""

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
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
MODULES = [p for p in SRC.rglob("*.py") if "tasks" not in p.parts and p.name != "__init__.py"]
HEAVY = {"numpy", "pandas", "scipy", "rich", "sklearn", "matplotlib", "jinja2"}


def room_of(module: str) -> str:
    """The layer that a dotted module name, without the package, belongs to."""
    parts = module.split(".")
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in LEVEL), parts[0])


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts)


def imported(path: Path, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    found = set()
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def imported_rooms(path: Path) -> set[str]:
    return {
        room_of(name.removeprefix("mlagentbench."))
        for name in imported(path)
        if name.startswith("mlagentbench.")
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_down(path):
    own = room_of(module_of(path))
    for room in imported_rooms(path) & LEVEL.keys() - {own}:
        assert LEVEL[own] < LEVEL[room], f"{own} must not import {room}"


def test_every_room_has_its_level():
    assert {room_of(module_of(path)) for path in MODULES} <= LEVEL.keys()


@pytest.mark.parametrize("path", list(SRC.glob("tasks/*/*.py")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_task_imports_nothing_of_ours_but_the_checks(path):
    ours = {name for name in imported(path) if name.startswith("mlagentbench")}
    assert all(name.startswith("mlagentbench.grading.checks") for name in ours)


@pytest.mark.parametrize(
    "name",
    ["cli/app", "cli/batch", "cli/reports", "task", "records", "discovery", "system/cache", "terminal/lists"],
)
def test_what_every_command_loads_is_light(name):
    assert not {module.split(".")[0] for module in imported(SRC / f"{name}.py", top_level_only=True)} & HEAVY


@pytest.mark.parametrize("path", list((SRC / "agents").glob("*.py")), ids=lambda p: p.name)
def test_no_agent_imports_grading(path):
    assert "grading" not in imported_rooms(path)
