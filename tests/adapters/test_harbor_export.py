"""Tasks exported for Harbor, and their verifier as a process; tests/bridges has Harbor itself."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlagentbench.preparation.prepare import prepare_data
from mlagentbench.system.progress import ignore_progress
from mlagentbench.task import Task


@pytest.fixture(scope="session")
def exported(toy: Path, cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy task as a Harbor task; tests must not change it."""
    folder = tmp_path_factory.mktemp("harbor") / "toy"
    done = cli("export", toy, "--to", "harbor", "-o", folder)
    assert (done.returncode, done.stdout) == (0, f"{folder}\n")
    return folder


@pytest.fixture
def verify(exported: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs the exported verifier, with its own copy of this package, on a workspace with these files."""

    def run_verifier(files: dict[str, str], **links: Path) -> dict[str, Any]:
        workspace, out = tmp_path / "workspace", tmp_path / "out"
        workspace.mkdir()
        out.mkdir()
        for name, text in files.items():
            (workspace / name).write_text(text)
        for name, target in links.items():
            (workspace / f"{name}.csv").symlink_to(target)
        command = [sys.executable, "-P", "-W", "error", "-m", "mlagentbench.adapters.harbor.verify"]
        tests = exported / "tests"
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tests)}
        done = subprocess.run(
            [*command, tests, workspace, out], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return {"result": json.loads(done.stdout), "rewards": json.loads((out / "reward.json").read_text())}

    return run_verifier


def rows(function: Callable[[int], float]) -> str:
    return "id,value\n" + "".join(f"{number},{function(number)}\n" for number in range(10))


def test_the_answers_are_only_in_the_folder_of_the_verifier(exported, toy):
    answers = (
        prepare_data(Task.load(str(toy)), "open", ignore_progress).private / "answers.csv"
    ).read_bytes()
    holders = [
        path.relative_to(exported).parts[0]
        for path in exported.rglob("*")
        if path.is_file() and path.read_bytes() == answers
    ]
    assert holders == ["tests"]
    config = tomllib.loads((exported / "task.toml").read_text())
    assert config["verifier"]["environment_mode"] == "separate"
    assert config["environment"]["network_mode"] == "no-network"
    assert "for each id of questions.csv" in (exported / "instruction.md").read_text()
    reference = (toy / "reference" / "train.py").read_bytes()
    assert (exported / "solution" / "files" / "train.py").read_bytes() == reference
    assert (exported / "environment" / "workspace" / "train.py").read_bytes() != reference


def test_a_good_submission_is_a_success(verify):
    graded = verify({"submission.csv": rows(lambda number: number)})
    assert graded["rewards"] == {"reward": 1, "success": 1, "improvement": 1, "score": 0, "valid": 1}


def test_a_submission_as_bad_as_the_starter_is_valid_and_no_success(verify):
    graded = verify({"submission.csv": rows(lambda number: number + 5)})
    assert graded["rewards"] == {"reward": 0, "success": 0, "improvement": 0, "score": 5, "valid": 1}


def test_no_submission_is_a_reward_of_zero(verify):
    graded = verify({"train.py": ""})
    assert graded["rewards"] == {"reward": 0, "success": 0, "valid": 0}
    assert graded["result"]["invalid"] == "submission.csv is missing"


def test_a_link_to_the_answers_is_no_submission(verify, exported):
    graded = verify({}, submission=exported / "tests" / "private" / "answers.csv")
    assert graded["rewards"]["reward"] == 0
    assert graded["result"]["invalid"] == "submission.csv is missing"


def test_a_hard_start_has_the_solution_in_the_workspace(cli, toy, tmp_path):
    assert cli("export", toy, "--to", "harbor", "-o", tmp_path / "t", "--start", "reference").returncode == 0
    reference = (toy / "reference" / "train.py").read_bytes()
    assert (tmp_path / "t" / "environment" / "workspace" / "train.py").read_bytes() == reference
    spec = json.loads((tmp_path / "t" / "tests" / "run.json").read_text())
    assert (spec["start"], spec["baseline"]["mean"]) == ("reference", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vectorization"], "its grader runs submitted code in a sandbox without the answers"),
        (["{toy}", "--reward", "luck"], "No such reward: 'luck'. Available: success, progress."),
        (["{toy}", "--reward", "progress"], "the score of its expert is not known. Measure it"),
        (["{toy}", "-o", "{full}"], "exists already and is not an empty folder"),
        (["nothing"], "No such task: 'nothing'."),
    ],
)
def test_what_cannot_be_exported_is_a_usage_error(arguments, message, cli, toy, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    arguments = [argument.format(toy=toy, full=tmp_path / "full") for argument in arguments]
    target = [] if "-o" in arguments else ["-o", tmp_path / "new"]
    done = cli("export", *arguments, *target, "--to", "harbor")
    assert done.returncode == 2 and message in done.stderr
    assert not (tmp_path / "new").exists()
