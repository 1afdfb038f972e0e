"""Plugins of other packages: the package in example/ is really installed, and runs in real processes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlagentbench import discovery
from mlagentbench.actions import base as actions
from mlagentbench.runner.folder import RunFolder

PACKAGE = Path(__file__).parent / "example"
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
CallCommand = Callable[..., "subprocess.CompletedProcess[str]"]


def environment_with(folder: Path) -> dict[str, str]:
    """The environment of a process that finds the packages in `folder`."""
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip has installed the example package."""
    target = tmp_path_factory.mktemp("site-packages")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--no-compile"]
    options += ["--disable-pip-version-check", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", target, PACKAGE],
        check=True,
        capture_output=True,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull},
    )
    return target


@pytest.fixture
def search_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Lets this process find the packages in a folder, until the end of the test."""
    caches = discovery.installed_plugins, actions._load_all_actions
    before = set(sys.modules)

    def add(folder: Path) -> None:
        monkeypatch.syspath_prepend(folder)
        for function in caches:
            function.cache_clear()

    yield add
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("broken", "example_plugins"):
            del sys.modules[name]
    for function in caches:
        function.cache_clear()


@pytest.fixture
def call(cli_process: Cli, installed: Path) -> CallCommand:
    """Runs a command in a process that finds the example package."""
    return lambda *args: cli_process(*args, env=environment_with(installed))


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (
            "agents",
            {
                "agent": "adder",
                "type": "agent",
                "needs": "a model",
                "what_it_does": "Adds the two numbers of each question.",
            },
        ),
        (
            "actions",
            {"action": "Count Lines", "arguments": "file_name", "what_it_does": "Count the lines of a file."},
        ),
        (
            "models",
            {
                "model": "echo:PREFIX",
                "key": None,
                "what_it_is": "a model that repeats the last message after a prefix.",
            },
        ),
        (
            "tasks",
            {
                "task": "addition",
                "category": "example",
                "modality": "tabular",
                "metric": "mean absolute error ↓",
                "starter": 20.0,
                "reference": 0.0,
                "expert": None,
                "ceiling": None,
                "open_edition": "5 pairs of numbers",
                "paper_edition": None,
            },
        ),
    ],
)
def test_a_plugin_is_listed_beside_the_builtin_ones(
    cli: Cli,
    installed: Path,
    search_path: Callable[[Path], None],
    what: str,
    expected: dict[str, object],
) -> None:
    builtin = json.loads(cli("list", what, "--json").stdout)
    search_path(installed)
    completed = cli("list", what, "--json")
    assert completed.returncode == 0, completed.stderr
    rows = json.loads(completed.stdout)
    assert [row for row in rows if row not in builtin] == [expected]
    assert [row for row in rows if row != expected] == builtin


@pytest.fixture(scope="module")
def plugin_run(cli_process: Cli, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with plugins of every kind that no test changes."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    options = ["--agent", "adder", "--model", "echo:You said:", "--sandbox", "marked", "--out", folder]
    completed = cli_process("run", "addition", *options, "--json", env=environment_with(installed))
    assert completed.returncode == 0, completed.stderr
    (folder / "printed.json").write_text(completed.stdout)
    return folder


def test_a_run_uses_the_task_agent_action_model_and_sandbox_of_a_plugin(plugin_run: Path) -> None:
    result = json.loads((plugin_run / "printed.json").read_text())
    assert (result["task"], result["agent"], result["model"]) == ("addition", "adder", "echo:You said:")
    assert (result["score"], result["baseline"], result["success"]) == (0.0, 20.0, True)
    assert (result["ending"], result["tokens"], result["unsandboxed"]) == ("submitted", 5, False)
    folder = RunFolder(plugin_run)
    assert (folder.spec.task, folder.spec.sandbox) == ("addition", "marked")
    steps = folder.steps()
    assert steps[0].call.thought == "You said: What should I do?" and steps[0].observation == "6 lines"
    assert steps[1].observation.endswith("sandbox: marked, gpu=''")


def test_a_run_with_plugins_is_shown_resumed_and_verified(
    call: CallCommand, cli: Cli, plugin_run: Path, tmp_path: Path
) -> None:
    shutil.copytree(plugin_run, tmp_path / "run", symlinks=True)
    before = [step.call for step in RunFolder(tmp_path / "run").steps()]
    completed = call("resume", tmp_path / "run", "--from-step", 2, "--json")
    assert completed.returncode == 0 and json.loads(completed.stdout)["score"] == 0.0, completed.stderr
    assert [step.call for step in RunFolder(tmp_path / "run").steps()] == before
    checks = json.loads(call("verify", tmp_path / "run", "--json").stdout)
    assert len(checks) > 10 and all(check["holds"] for check in checks)
    # Without the package, the run can still be shown; the error for anything else names what is missing.
    assert "Count Lines" in cli("show", tmp_path / "run").stdout
    completed = cli("verify", tmp_path / "run")
    assert completed.returncode == 2 and "No such task: 'addition'. Available: " in completed.stderr


def test_errors_list_the_plugins_among_the_available_ones(
    cli: Cli, installed: Path, search_path: Callable[[Path], None], toy: Path
) -> None:
    search_path(installed)
    for command, message in (
        (("run", "nothing-like-it"), "No such task: 'nothing-like-it'. Available: addition, "),
        (("run", toy, "--agent", "nobody"), "No such agent: 'nobody'. Available: act, adder, "),
        (("run", toy, "--sandbox", "box"), "No such sandbox: 'box'. Available: auto, bwrap, "),
    ):
        completed = cli(*command)
        assert completed.returncode == 2 and message in completed.stderr
    assert completed.stderr.endswith(", marked.\n")


def test_the_action_of_the_documentation_is_the_one_of_the_example_package() -> None:
    page = Path(__file__).parents[2] / "docs" / "extend" / "action.md"
    source = (PACKAGE / "example_plugins" / "count_lines.py").read_text()
    assert f"```python\n{source}```" in page.read_text()


def write_plugin(folder: Path, kind: str, value: str, source: str) -> dict[str, str]:
    """Write the module `broken` with one entry point; returns the environment that finds it."""
    (folder / "broken.py").write_text(source)
    info = folder / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mlagentbench.{kind}]\n{value}\n")
    return environment_with(folder)


ACTION = """
from mlagentbench.actions.base import action

@action(%s)
def %s(context) -> str:
    "Does nothing."
    return ""
"""
AGENT = "from mlagentbench.agents.base import Agent\nclass %s(Agent):\n    def run(self, env): pass\n"


@pytest.mark.parametrize(
    ("kind", "value", "source", "message"),
    [
        (
            "actions",
            "broken = broken",
            ACTION % ("change_workspace=False", "broken"),
            "The plugin broken (broken) cannot be imported: TypeError: action() got an unexpected keyword"
            " argument 'change_workspace'",
        ),
        (
            "actions",
            "broken = broken",
            ACTION % ("", "brokn"),
            "The action broken must be a function with that name, decorated with @action(); got None.",
        ),
        (
            "actions",
            "broken = broken",
            "def broken(context): return ''\n",
            "The action broken must be a function with that name, decorated with @action(); got <function",
        ),
        ("agents", "broken = broken", "1 / 0\n", "cannot be imported: ZeroDivisionError: division by zero"),
        (
            "agents",
            "broken = broken",
            AGENT % "One" + AGENT % "Two",
            "must define exactly one Agent, but defines 2.",
        ),
        (
            "agents",
            "broken = broken:missing",
            "",
            "The plugin broken (broken:missing) cannot be imported: AttributeError",
        ),
        (
            "agents",
            "broken = broken:value",
            "value = 5\n",
            "The plugin broken must be a module or a subclass of Agent, not 5.",
        ),
        (
            "tasks",
            "broken = broken:folder",
            "folder = 5\n",
            "The plugin broken must be a package or a Path of a folder named broken, not 5.",
        ),
    ],
)
def test_a_broken_plugin_is_one_line(
    cli: Cli,
    tmp_path: Path,
    search_path: Callable[[Path], None],
    kind: str,
    value: str,
    source: str,
    message: str,
) -> None:
    write_plugin(tmp_path, kind, value, source)
    search_path(tmp_path)
    completed = cli("list", kind)
    assert (completed.returncode, completed.stdout) == (2, ""), completed.stderr
    assert completed.stderr.count("\n") == 1 and message in completed.stderr


def test_a_plugin_cannot_replace_a_builtin_one(cli_process: Cli, toy: Path, tmp_path: Path) -> None:
    environment = write_plugin(tmp_path, "agents", "baseline = broken", "raise SystemExit('imported')\n")
    completed = cli_process(
        "run", toy, "--agent", "baseline", "--out", tmp_path / "run", "--json", env=environment
    )
    assert completed.returncode == 0 and json.loads(completed.stdout)["score"] == 5.0, completed.stderr


def test_a_broken_action_of_a_plugin_stops_a_run_before_it_starts(
    cli_process: Cli, toy: Path, tmp_path: Path
) -> None:
    source = ACTION % ("change_workspace=False", "broken")
    environment = write_plugin(tmp_path, "actions", "broken = broken", source)
    completed = cli_process("run", toy, "--agent", "baseline", "--out", tmp_path / "run", env=environment)
    assert completed.returncode == 2 and completed.stderr.count("\n") == 1, completed.stderr
    assert "action() got an unexpected keyword argument 'change_workspace'" in completed.stderr
