"""Skeletons are complete: a new task keeps the contract, a new agent runs."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.authoring.skeletons import create_task

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_new_task_passes_every_check_but_attacks(cli: Cli, tmp_path: Path) -> None:
    assert cli("new", "task", "my-task", cwd=tmp_path).returncode == 0
    completed = cli("check", "my-task", "--quick", "--json", cwd=tmp_path)
    report = json.loads(completed.stdout)
    assert (completed.returncode, report["fail"]) == (0, 0), completed.stdout
    assert {check["name"] for check in report["checks"] if check["status"] == "pass"} >= {
        *("files", "modules", "validation-line", "levels", "ceiling", "reachable", "data", "private"),
        *("columns", "answers", "constants", "malformed"),
    }


@pytest.mark.slow
def test_a_new_task_passes_every_check(cli: Cli, tmp_path: Path) -> None:
    create_task(tmp_path / "my-task")
    completed = cli("check", tmp_path / "my-task", "--json")
    report = json.loads(completed.stdout)
    assert (completed.returncode, report["fail"]) == (0, 0), completed.stdout
    skipped = {check["name"] for check in report["checks"] if check["status"] == "skip"}
    assert skipped == {"rules", "empty"}


def test_a_new_agent_runs_and_takes_its_option(cli: Cli, toy: Path, tmp_path: Path) -> None:
    completed = cli("new", "agent", tmp_path / "my-agent")
    assert completed.returncode == 0 and str(tmp_path / "my-agent.py") in completed.stdout
    source = (tmp_path / "my-agent.py").read_text()
    assert "class MyAgent(Agent):" in source
    options = ["--agent", tmp_path / "my-agent.py", "--set", "rounds=2", "--out", tmp_path / "run", "--json"]
    result = json.loads(cli("run", toy, *options).stdout)
    assert (result["ending"], result["score"], result["steps"]) == ("submitted", 5.0, 4)


def test_a_new_agent_with_a_model_asks_it(cli: Cli, toy: Path, tmp_path: Path) -> None:
    assert cli("new", "agent", "thinker.py", "--with-model", cwd=tmp_path).returncode == 0
    (tmp_path / "replies.txt").write_text(
        'Thought: Run it.\nAction: Execute Script\nAction Input: {"script_name": "train.py"}\n=====\n'
        'Thought: Done.\nAction: Final Answer\nAction Input: {"final_answer": "the starter"}\n'
    )
    options = ["--agent", "thinker.py", "--model", "scripted:replies.txt", "--out", "run", "--json"]
    completed = cli("run", toy, *options, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert (result["ending"], result["score"], result["steps"]) == ("submitted", 5.0, 2)


@pytest.mark.parametrize(
    ("what", "name", "message"),
    [
        ("task", "house-price", "The task house-price exists already."),
        ("task", "two words", "'two words' cannot be the name of a task"),
        ("task", "there", "there exists already."),
        ("agent", "tuner", "The agent tuner exists already."),
        ("agent", "there", "there.py exists already."),
        ("model", "mine", "Cannot write a new 'model'. Available: task, agent."),
    ],
)
def test_a_name_that_does_not_fit_is_one_line(
    cli: Cli, tmp_path: Path, what: str, name: str, message: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there.py").touch()
    completed = cli("new", what, name, cwd=tmp_path)
    assert completed.returncode == 2 and message in completed.stderr and completed.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there", "there.py"]
