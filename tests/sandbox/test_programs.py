"""The programs that run inside the sandbox are stand-alone files."""

import ast
import sys
from pathlib import Path

import pytest

from mlagentbench.sandbox import programs

PROGRAMS = [path for path in Path(programs.__file__).parent.glob("*.py") if path.name != "__init__.py"]
ALLOWED_PACKAGES = {"submission_runner": {"numpy"}}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_imports_the_standard_library_only(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - sys.stdlib_module_names == ALLOWED_PACKAGES.get(path.stem, set())


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_can_be_started_as_a_file(path: Path) -> None:
    assert path.read_text().rstrip().split("\n\n\n")[-1].startswith('if __name__ == "__main__":')


def test_all_programs_are_found() -> None:
    assert len(PROGRAMS) == 6
