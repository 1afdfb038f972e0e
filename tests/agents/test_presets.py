"""The agents that are programs of others, as their makers publish them, with a loopback model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coding_model import CodingModel
from fake_provider import ScriptedReply

from mlagentbench import discovery
from mlagentbench.agents.base import instantiate_agent, load_agent_class
from mlagentbench.agents.programs.preset import LOCKS_FOLDER, NpmPreset, Preset
from mlagentbench.errors import UsageError
from mlagentbench.runner.folder import RunFolder

PERFECT = """ids = [line.strip() for line in open("questions.csv")][1:]
open("submission.csv", "w").write("id,value\\n" + "".join(f"{i},{i}\\n" for i in ids))
print("validation mean absolute error: 0.0")
"""
SHELL_COMMAND = f"cat > train.py <<'END'\n{PERFECT}END\npython train.py"
CODE = f"""I write the script and run it.
<code>
import pathlib, subprocess
pathlib.Path("train.py").write_text({PERFECT!r})
print(subprocess.run("python train.py", shell=True, capture_output=True, text=True).stdout)
</code>"""
EDIT = f"I replace the script.\n\ntrain.py\n```\n{PERFECT}```\n\nRun it:\n\n```bash\npython train.py\n```\n"
# Programs whose model does not call a shell tool: what it says instead.
SCRIPTS: dict[str, list[ScriptedReply]] = {
    "smolagents": [CODE, '<code>\nfinal_answer("done")\n</code>'],
    "aider": [EDIT],
    "aide": [
        f"Each id is its own value.\n\n```python\n{PERFECT.replace('questions', './input/questions')}```"
    ],
}
OPTIONS = {"aide": ("--set", "arguments=agent.steps=1")}
PRESETS = [name for name in discovery.builtin_names("agents") if issubclass(load_agent_class(name), Preset)]
FAST = "smolagents"  # 17 MB


@pytest.fixture
def run_preset(cli: Any, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs an agent on the toy task and returns its result."""
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "wire")

    def run(name: str) -> dict[str, Any]:
        with CodingModel(SHELL_COMMAND, *SCRIPTS.get(name, ())) as model:
            model_name = f"{model.url}/v1#wire"
            options = ("--model", model_name, "--out", tmp_path / "run", "--json", *OPTIONS.get(name, ()))
            completed = cli("run", toy, "--agent", name, *options)
        assert completed.returncode == 0, completed.stderr
        return dict(json.loads(completed.stdout))

    yield run


def check_run(result: dict[str, Any], folder: RunFolder) -> None:
    outputs = (folder.path / "outputs" / "program.txt").read_text()
    assert (result["ending"], result["score"], result["success"]) == ("submitted", 0.0, True), outputs
    program = folder.spec.program
    assert program and program.version == load_agent_class(program.name).default_version  # type: ignore[attr-defined]
    assert (folder.path / "outputs" / "program-lock.txt").read_text() == folder_lock(program.name)


def folder_lock(name: str) -> str:
    agent = load_agent_class(name)()
    agent.prepare()
    return agent.program_lock


@pytest.mark.agents
@pytest.mark.parametrize("name", [name for name in PRESETS if name != FAST])
def test_the_real_program_solves_a_task(name: str, run_preset: Any, tmp_path: Path) -> None:
    check_run(run_preset(name), RunFolder(tmp_path / "run"))


def test_the_smallest_real_program_solves_a_task_and_is_recorded(
    run_preset: Any, cli: Any, tmp_path: Path
) -> None:
    check_run(run_preset(FAST), RunFolder(tmp_path / "run"))
    step = RunFolder(tmp_path / "run").steps()[1]
    assert (
        step.call.thought.startswith("I write the script")
        and "validation mean absolute error: 0.0" in step.observation
    )
    rows = json.loads(cli("leaderboard", tmp_path / "run", "--json").stdout)["places"]
    assert rows[0]["agent"].startswith("smolagents http://127.0.0.1") and "[1.26.0 " in rows[0]["agent"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_locked_and_listed_with_what_it_needs(name: str) -> None:
    preset = load_agent_class(name)
    assert issubclass(preset, Preset) and "MB" in preset.requirements
    lock = preset.lock_file().read_text()
    assert "://" not in lock and preset.default_version in lock
    if issubclass(preset, NpmPreset):
        packages = json.loads(lock)["packages"]
        assert all(entry["integrity"].startswith("sha512-") for path, entry in packages.items() if path)
    else:
        assert "--hash=sha256:" in lock


def test_there_is_no_lock_without_an_agent() -> None:
    assert {path.stem for path in LOCKS_FOLDER.iterdir()} == set(PRESETS)


@pytest.mark.parametrize(
    ("options", "sandbox", "message"),
    [
        ({"version": "1.0; rm -rf"}, "bwrap", "'1.0; rm -rf' is not a version"),
        ({"arguments": "'"}, "bwrap", "cannot be parsed"),
        ({"command": "x"}, "bwrap", "has no option 'command'. Available: version, arguments"),
        ({}, "none", "runs in a sandbox only"),
    ],
)
def test_wrong_options_of_a_preset_are_usage_errors(
    options: dict[str, Any], sandbox: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        instantiate_agent(load_agent_class(FAST), 0, options, sandbox)
