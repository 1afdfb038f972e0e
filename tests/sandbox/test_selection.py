"""Sandboxes of other packages are found by their entry points; the example in the documentation works."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from example_package import installed_example
from script_runner import ScriptRunner, require_cleanup

from mlagentbench.errors import UsageError
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.selection import create_sandbox, find_unprivileged_uids

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "sandbox.md"


MAPS = {
    "of the machine": ("0 0 4294967295", range(1_900_000_000, 1_901_000_000)),
    "of a container": ("0 100000 65536", range(32768, 65534)),
    "of rootless podman": ("0 1001 1\n1 100000 65536", range(32769, 65535)),
    "of one user": ("0 1001 1", range(0)),
}


@pytest.mark.parametrize("users", MAPS)
def test_commands_have_users_that_exist_among_those(users: str, tmp_path: Path) -> None:
    text, expected = MAPS[users]
    for name in ("uid_map", "gid_map"):
        (tmp_path / name).write_text(f"{text}\n")
    assert find_unprivileged_uids(tmp_path) == expected


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
