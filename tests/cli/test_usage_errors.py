"""A user's mistake is one line on standard error and exit code 2, never a traceback."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import start_run

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
UsageErrorOf = Callable[..., str]


def test_mistakes_are_one_line_and_exit_code_two(
    usage_error: UsageErrorOf, toy: Path, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "none.py").write_text("x = 1\n")
    for args, message in {
        ("run", "atlantis"): "No such task: 'atlantis'. Available: ",
        ("run", toy, "--agent", "genius"): "No such agent: 'genius'. Available: ",
        ("run", toy, "--agent", tmp_path / "missing.py"): "No such file: ",
        ("run", toy, "--agent", tmp_path / "none.py"): "must define exactly one Agent, but defines 0.",
        ("run", toy, "--edition", "pocket"): "has no edition 'pocket'. Available: open.",
        (
            "run",
            toy,
            "--sandbox",
            "paper-bag",
        ): "No such sandbox: 'paper-bag'. Available: auto, bwrap, landlock, podman",
        ("run", toy, "--steps", "0"): "--steps",
        ("run", toy, "--steps", "many"): "--steps",
        ("run", toy, "--hours", "0", "--out", tmp_path / "x"): "hours: input should be greater than 0",
        ("run", toy, "--hours", "nan", "--out", tmp_path / "x"): "hours",
        ("run", toy, "--memory", "-1", "--out", tmp_path / "x"): "memory_gb",
        ("run", toy, "--seed", "-1"): "--seed",
        ("run", toy, "--colour", "red"): "--colour",
        ("run", toy, "--out", tmp_path / "full"): "is not empty",
        ("run", toy, "--instance", "unknown"): "is not prepared",
        ("run", toy, "--agent", "tools", "--model", "local"): (
            "The agent tools needs a model that calls tools, which local cannot do."
            " Choose another model, or an agent that reads its actions from text, such as act."
        ),
        ("run", toy, "--set", "steps"): "--set takes NAME=VALUE; 'steps' has no '='.",
        ("run", toy, "--agent", "act", "--model", "scripted"): "Pass --model scripted:FILE.",
        ("run",): "Missing argument 'TASK'. See: mlagentbench run --help",
        ("dance",): "No such command 'dance'. See: mlagentbench --help",
        ("rnu",): "Did you mean 'run'?",
        ("check", tmp_path / "nowhere"): "No such task: ",
        ("check", "house-price", "--edition", "pocket"): "has no edition 'pocket'. Available: ",
        ("list", "unicorns"): (
            "No such list: 'unicorns'. Available: tasks, agents, actions, models, runtimes."
        ),
        ("resume", tmp_path): "is not a run",
        ("resume", tmp_path / "nowhere"): "is not a run",
        ("grade", tmp_path): "No runs found below",
        ("verify", tmp_path): "is not a run",
        ("show", tmp_path): "is not a run",
        ("show", tmp_path / "nowhere"): "is neither a run folder nor a task. Tasks: ",
        ("baseline", toy, "-n", "1"): "-n",
        ("prepare", "atlantis"): "No such task: 'atlantis'. Available: ",
        ("prepare", toy, "--fresh", "--twin"): "Choose one.",
        ("prepare", toy, "--twin", "--data-only"): "Task toy has no twin",
    }.items():
        assert message in usage_error(*args), args
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("part", ["description.md", "starter", "grade.py", "prepare.py"])
def test_an_incomplete_task_folder_is_one_line(
    usage_error: UsageErrorOf, variant: Callable[..., Path], part: str
) -> None:
    assert f"{part} is missing" in usage_error("run", variant({part: None}))


def test_an_invalid_task_toml_is_one_line(usage_error: UsageErrorOf, variant: Callable[..., Path]) -> None:
    assert "not valid TOML" in usage_error("run", variant({"task.toml": "title = ["}, "one"))
    assert "field required" in usage_error("show", variant({"task.toml": "title = 'x'"}, "two"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": 1}', b'{"format": "x"}'])
def test_a_damaged_run_is_one_line(usage_error: UsageErrorOf, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    for command in ("resume", "grade", "verify", "show"):
        message = usage_error(command, tmp_path)
        assert "run.json is damaged: " in message and ": it: " not in message


def test_a_run_of_a_newer_version_and_a_damaged_result_are_one_line(
    usage_error: UsageErrorOf, tmp_path: Path, setup: Setup
) -> None:
    start_run(setup, "nothing", tmp_path / "run")
    (tmp_path / "run" / "result.json").write_bytes(b"\xff")
    assert "result.json is damaged" in usage_error("show", tmp_path / "run")
    spec = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**spec, "format": 99}))
    assert "newer version" in usage_error("show", tmp_path / "run")


def test_a_mistake_in_a_real_process_is_one_line_and_help_is_exit_code_zero(
    cli_process: Cli, toy: Path
) -> None:
    completed = cli_process("run", toy, "--agent", "genius")
    assert (completed.returncode, completed.stdout, completed.stderr.count("\n")) == (2, "", 1)
    completed = cli_process()
    assert completed.returncode == 0 and "Usage" in completed.stdout


@pytest.mark.parametrize("options", [("--step", "3"), ("--diff",)])
def test_options_for_runs_are_refused_for_a_task(cli: Cli, toy: Path, options: tuple[str, ...]) -> None:
    completed = cli("show", toy, *options)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert "--step and --diff are for runs" in completed.stderr


@pytest.mark.parametrize("which", ["agent", "task", "out"])
def test_an_argument_that_is_not_utf8_is_refused(tmp_path: Path, toy: Path, which: str) -> None:
    name = os.fsencode(tmp_path) + b"/sl\xf6w"
    arguments: dict[str, str | bytes] = {
        "agent": "baseline",
        "task": str(toy),
        "out": str(tmp_path / "out"),
    }
    arguments[which] = name + (b".py" if which == "agent" else b"")
    command = [sys.executable, "-m", "mlagentbench", "run", arguments["task"], "--agent", arguments["agent"]]
    completed = subprocess.run([*command, "--out", arguments["out"]], capture_output=True, check=False)
    assert completed.returncode == 2 and b"sl\\udcf6w" in completed.stderr
    assert b"is not valid UTF-8" in completed.stderr
    assert not (tmp_path / "out").exists()


def test_a_run_cannot_be_created_in_a_folder_that_is_not_utf8_but_can_be_resumed_there(
    cli: Cli, tmp_path: Path, toy: Path
) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/sl\xf6w"))
    folder.mkdir()
    refused = cli("run", toy, "--agent", "baseline", "--out", "run", cwd=folder)
    assert refused.returncode == 2 and "valid UTF-8" in refused.stderr and "Traceback" not in refused.stderr
    assert cli("run", toy, "--agent", "baseline", "--out", tmp_path / "run").returncode == 0
    shutil.copytree(tmp_path / "run", folder / "run")
    assert cli("verify", "run", cwd=folder).returncode == 0
    resumed = cli("resume", "run", "--from-step", 0, "--json", cwd=folder)
    assert resumed.returncode == 0 and json.loads(resumed.stdout)["score"] == 5.0, resumed.stderr
