"""Sandboxes of other packages are found by their entry points; the example in the documentation works."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from script_runner import ScriptRunner, require_cleanup

from mlagentbench.discovery import installed_plugins
from mlagentbench.errors import UsageError
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.selection import create_sandbox

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "sandbox.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with the sandbox of the documentation."""
    blocks = dict(re.findall(r"```(python|toml)\n(.*?)```", PAGE.read_text(), re.DOTALL))
    package, metadata = tmp_path / "my_sandboxes", tmp_path / "my_sandboxes-1.0.dist-info"
    for folder in (package, metadata):
        folder.mkdir()
    (package / "__init__.py").touch()
    (package / "no_network.py").write_text(blocks["python"])
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-sandboxes\nVersion: 1.0\n")
    group = re.sub(r'\[project\.entry-points\."(.+)"\]', r"[\1]", blocks["toml"])
    (metadata / "entry_points.txt").write_text(re.sub(r'"|\s*#.*', "", group))
    monkeypatch.syspath_prepend(str(tmp_path))
    installed_plugins.cache_clear()
    yield
    installed_plugins.cache_clear()


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
        UsageError, match=r"No such sandbox: 'jail'\. Available: bwrap, .*, none, no-network\."
    ):
        create_sandbox("jail")
