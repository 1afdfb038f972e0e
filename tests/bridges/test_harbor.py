"""Harbor's own loader, agents and trials on an exported task, in our sandbox instead of Docker."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_provider import FakeProvider
from harbor.agents.base import BaseAgent
from harbor.models.task.task import Task
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.trial.trial import Trial

from mlagentbench.adapters.harbor.export import export_task
from mlagentbench.system.progress import ignore_progress

ENVIRONMENT = "mlagentbench.adapters.harbor.environment:BubblewrapEnvironment"


@pytest.fixture(scope="session")
def exported(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("harbor") / "toy"
    export_task(str(toy), folder, "open", ignore_progress)
    return folder


class ShellAgent(BaseAgent):
    """Runs one command in the environment, and keeps what it printed."""

    def __init__(self, *args: Any, command: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.command = command

    @staticmethod
    def name() -> str:
        return "shell"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: Any) -> None:
        pass

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        result = await environment.exec(self.command, timeout_sec=20)
        self.logs_dir.joinpath("output.txt").write_text(f"{result.stdout}{result.stderr}")


def run_trial(task: Path, trials: Path, agent: AgentConfig) -> tuple[TrialResult, Path]:
    async def run() -> TrialResult:
        config = TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=trials,
            agent=agent,
            environment=EnvironmentConfig(import_path=ENVIRONMENT),
        )
        return await (await Trial.create(config)).run()

    result = asyncio.run(run())
    return result, trials / result.trial_name


def run_command(task: Path, trials: Path, command: str) -> tuple[dict[str, float], str]:
    agent = AgentConfig(import_path=f"{__name__}:ShellAgent", kwargs={"command": command})
    result, folder = run_trial(task, trials, agent)
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result is not None
    return result.verifier_result.rewards, (folder / "agent" / "output.txt").read_text()


def test_the_loader_of_harbor_accepts_the_task(exported):
    assert Task.is_valid_dir(exported)
    task = Task(exported)
    assert task.name == "mlagentbench/toy"
    assert "for each id of questions.csv" in task.instruction


def test_the_oracle_runs_the_reference_and_succeeds(exported, tmp_path):
    result, folder = run_trial(exported, tmp_path, AgentConfig(name="oracle"))
    assert result.exception_info is None
    assert result.verifier_result.rewards["reward"] == 1
    assert json.loads((folder / "verifier" / "result.json").read_text())["score"] == 0


def test_an_agent_that_does_nothing_gets_nothing(exported, tmp_path):
    result, _ = run_trial(exported, tmp_path, AgentConfig(name="nop"))
    assert result.verifier_result.rewards == {"reward": 0, "success": 0, "valid": 0}


def test_terminus_works_in_its_terminal(exported, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    solve = "seq 0 9 | sed 's/.*/&,&/; 1i id,value' > submission.csv; wc -l submission.csv\n"
    commands = [{"keystrokes": solve, "duration": 1}]
    turns = [
        {"analysis": "a", "plan": "p", "commands": commands, "task_complete": False},
        {"analysis": "a", "plan": "p", "commands": [], "task_complete": True},
        {"analysis": "a", "plan": "p", "commands": [], "task_complete": True},  # it asks for a confirmation
    ]
    with FakeProvider(*map(json.dumps, turns)) as provider:
        options = {"api_base": f"{provider.url}/v1", "record_terminal_session": False}
        agent = AgentConfig(name="terminus-2", model_name="openai/wire-1", kwargs=options)
        result, _ = run_trial(exported, tmp_path, agent)
        seen = json.dumps(provider.requests[1].body)
    assert result.exception_info is None
    assert "11 submission.csv" in seen  # the terminal, as the model sees it
    assert result.verifier_result.rewards["reward"] == 1


def test_the_answers_cannot_be_read_from_inside(exported, tmp_path):
    answers = exported / "tests" / "private" / "answers.csv"
    search = "ls -A /tests /solution; find / \\( -name answers.csv -o -name run.json \\) 2>/dev/null"
    rewards, output = run_command(exported, tmp_path, f"{search}; cat {answers}; id -u")
    assert output.splitlines() == [
        "/solution:",
        "",
        "/tests:",
        "1000",
        f"cat: {answers}: No such file or directory",
    ]
    assert rewards["reward"] == 0


def test_a_planted_verifier_and_links_to_the_answers_gain_nothing(exported, tmp_path):
    plant = (
        "echo '{\"reward\": 1}' | tee /logs/verifier/reward.json /tests/test.sh /logs/artifacts/reward.json;"
        "ln -s /tests/private/answers.csv submission.csv;"
        "mkdir mlagentbench; echo 'raise SystemExit' > mlagentbench/__init__.py; echo 1 > sitecustomize.py"
    )
    rewards, _ = run_command(exported, tmp_path, plant)
    assert rewards == {"reward": 0, "success": 0, "valid": 0}


def test_there_is_no_network(exported, tmp_path):
    connect = "import socket; socket.create_connection(('1.1.1.1', 53), 2)"
    assert "unreachable" in run_command(exported, tmp_path, f'python -c "{connect}"')[1]


def test_a_task_that_needs_a_network_is_refused(exported, tmp_path):
    task = shutil.copytree(exported, tmp_path / "task")
    config = (task / "task.toml").read_text()
    (task / "task.toml").write_text(config.replace('"no-network"', '"public"', 1))
    with pytest.raises(ValueError, match="has no network"):
        run_trial(task, tmp_path, AgentConfig(name="nop"))


def test_a_task_with_only_a_dockerfile_is_refused(exported, tmp_path):
    task = shutil.copytree(exported, tmp_path / "task")
    (task / "environment" / "bwrap.json").unlink()
    with pytest.raises(FileNotFoundError, match="cannot build other images"):
        run_trial(task, tmp_path, AgentConfig(name="nop"))
