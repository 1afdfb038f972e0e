"""Sandboxes of other packages are found by their entry points; the example in the documentation works."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from example_package import installed_example
from script_runner import ScriptRunner, require_cleanup

from mlagentbench.errors import UsageError
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.selection import create_sandbox

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "sandbox.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with the sandbox of the documentation."""
    with installed_example(PAGE, "my_sandboxes", "no_network", tmp_path, monkeypatch):
        yield


@pytest.fixture
def run_example(example: None, spec: SandboxSpec) -> Iterator[ScriptRunner]:
    yield from require_cleanup(ScriptRunner(create_sandbox("no-network"), spec, spec.workspace.parent))


def test_the_sandbox_of_the_documentation_runs_commands_without_a_network(run_example: ScriptRunner) -> None:
    result = run_example("import socket; print([name for _, name in socket.if_nameindex()])")
    assert (result.exit_code, result.text.strip()) == (0, "['lo']")
    assert run_example("while True: pass", timeout_s=0.5).limit == "time"


@pytest.mark.usefixtures("example")
def test_an_unknown_sandbox_is_refused_with_a_list_that_includes_plugins() -> None:
    with pytest.raises(
        UsageError, match=r"No such sandbox: 'jail'\. Available: auto, bwrap, .*, none, no-network\."
    ):
        create_sandbox("jail")
