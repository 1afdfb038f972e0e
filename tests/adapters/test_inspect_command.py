"""What works after pip install: inspect eval mlagentbench/…"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mlagentbench
from mlagentbench.runner.folder import RunFolder
from mlagentbench.system.extras import install_command
from mlagentbench.task import Task

ROOT = Path(__file__).parents[2]
MODEL = '''
from inspect_ai.model import GenerateConfig, ModelAPI, ModelOutput, ModelUsage, modelapi


@modelapi(name="script")
class Script(ModelAPI):
    """Runs the starter's script and submits."""

    async def generate(self, input, tools, tool_choice, config):
        done = sum(message.role == "tool" for message in input)
        calls = [("execute_script", {"script_name": "train.py"}), ("final_answer", {"final_answer": "x"})]
        name, args = calls[done]
        output = ModelOutput.for_tool_call("script", name, args)
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output
'''


@pytest.fixture
def installed(tmp_path):
    """An environment with the entry points of pyproject.toml, and one for a model."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [*project["entry-points"].items(), ("inspect_ai", {"script": "script_model"})]
    for name, (group, points) in zip(("mlagentbench", "script"), groups, strict=True):
        info = tmp_path / "site" / f"{name}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {project['version']}\n"
        )
        (info / "entry_points.txt").write_text(
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        )
        origin = {"url": f"file://{ROOT}", "dir_info": {"editable": True}}
        (info / "direct_url.json").write_text(json.dumps(origin))
    (tmp_path / "site" / "script_model.py").write_text(MODEL)
    source = Path(mlagentbench.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}:{source}", "INSPECT_DISPLAY": "plain"}


def inspect(*args, env, cwd):
    program = shutil.which("inspect", path=str(Path(sys.executable).parent))
    return subprocess.run([program, *args], env=env, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_inspect_eval_finds_house_price_by_name(installed, tmp_path):
    args = ["eval", "mlagentbench/house_price", "--model", "script/model", "-T", "steps=3"]
    done = inspect(*args, env=installed, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (tmp_path / "runs" / "inspect").iterdir()
    result = RunFolder(run).result
    assert (result.task, result.ending, result.valid, result.success) == (
        "house-price",
        "submitted",
        True,
        False,
    )
    assert (RunFolder(run).spec.limits.steps, len(list((tmp_path / "logs").glob("*.eval")))) == (3, 1)


def test_every_task_has_a_name_without_dashes(installed, tmp_path):
    code = (
        "from inspect_ai._util.registry import registry_lookup as find; import json, sys;"
        "print(json.dumps([name for name in sys.argv[1:] if not find('task', 'mlagentbench/' + name)]))"
    )
    names = [name.replace("-", "_") for name in Task.names()]
    command = [sys.executable, "-c", code, *names, "folder"]
    assert subprocess.check_output(command, env=installed, cwd=tmp_path, text=True) == "[]\n"


def test_a_mistyped_edition_is_one_line(installed, tmp_path):
    args = ["eval", "mlagentbench/house_price", "--model", "script/model", "-T", "edition=shut"]
    done = inspect(*args, env=installed, cwd=tmp_path)
    assert done.returncode != 0
    assert "Task house-price has no edition 'shut'. Available: open, paper." in " ".join(done.stdout.split())
    assert "Traceback" not in done.stdout + done.stderr


def test_without_inspect_one_line_shows_the_install_command():
    code = "import sys; sys.modules['inspect_ai'] = None; import mlagentbench.adapters.inspect.logs"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = f"Inspect is not installed: {install_command('inspect')}"
    assert done.stderr.splitlines()[-1].endswith(expected)
