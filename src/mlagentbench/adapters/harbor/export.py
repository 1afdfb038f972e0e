"""Exports a task as a folder for Harbor: `mlagentbench export TASK --to harbor -o DIR`."""

import json
import shutil
from pathlib import Path
from typing import Literal, get_args

import mlagentbench
from mlagentbench.adapters.harbor.definition import DEFINITION_FILE, EnvironmentDefinition
from mlagentbench.environment.problem_statement import build_problem_statement
from mlagentbench.errors import UsageError
from mlagentbench.grading.executed_scripts import ENTRY_SCRIPT
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.preparation.prepare import prepare_data
from mlagentbench.records import AgentSpec, Levels, Start
from mlagentbench.runner.baselines import find_levels
from mlagentbench.runner.setup import Setup
from mlagentbench.runtimes.base import PYTHON_NAME, find_runtime, read_requirements
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task
from mlagentbench.workspace.files import Workspace

RewardName = Literal["success", "progress"]
GRADING_RUNTIME = "grading"
MIN_VERIFIER_MB = 8192  # of memory, and of disk besides the workspace: for the answers and the grader
PACKAGE = Path(mlagentbench.__file__).parent
NOT_FOR_GRADING = shutil.ignore_patterns("tasks", "pages", "terminal", "cli", "__pycache__")

DOCKERFILE = """\
FROM python:{python}-slim
COPY requirements.txt /requirements.txt
RUN pip install --no-cache-dir -r /requirements.txt
"""
AGENT_IMAGE = """\
RUN apt-get update && apt-get install -y --no-install-recommends tmux && rm -rf /var/lib/apt/lists/*
COPY workspace /workspace
WORKDIR /workspace
"""
VERIFIER_IMAGE = """\
COPY . /tests
WORKDIR /tests
"""
TEST_SCRIPT = """\
#!/bin/bash
PYTHONPATH=/tests python3 -P -m mlagentbench.adapters.harbor.verify /tests /workspace /logs/verifier
"""
SOLVE_SCRIPT = """\
#!/bin/bash
set -e
cp -r /solution/files/. /workspace/
cd /workspace
SEED=0 python3 {script}
"""


def export_task(
    name: str,
    target: Path,
    edition: str,
    progress: ProgressCallback,
    instance: str = "",
    start: Start = "starter",
    reward: str = "success",
) -> Setup:
    """Write a task folder for Harbor.

    The answers are only in the folder `tests`, which Harbor shows to the verifier and not to the agent. The
    reference is the solution; for the start "reference" it is the expert's.

    Args:
        name: The task, or its folder.
        target: The folder to create.
        edition: The edition of its data.
        progress: Called with a line of text before each slow operation.
        instance: A data instance drawn by `prepare --fresh` or `--twin`.
        start: The solution that the agent starts from.
        reward: What Harbor takes as the reward, "success" or "progress". Both are always recorded.

    Raises:
        UsageError: The task cannot be exported, or `target` is in use.
    """
    task = Task.load(name)
    task.edition(edition)
    task.solution(start)
    if task.runs_submitted_code:
        raise UsageError(
            f"Task {task.name} cannot be exported: its grader runs submitted code in a sandbox without the"
            " answers, and a verifier of Harbor has no such sandbox."
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already and is not an empty folder.")
    data = prepare_data(task, edition, progress, instance)
    levels = find_levels(task, edition, data)
    _check_reward(reward, task.name, start, levels)
    runtime, sandbox = find_runtime(task.config.runtime), create_sandbox("none")
    setup = Setup(task, edition, data, runtime, sandbox, levels, start=start)
    try:
        _write_task(setup, target)
        _write_environment(setup, target / "environment")
        _write_solution(setup, target / "solution")
        _write_tests(setup, target / "tests", reward)
    except OSError as error:
        raise UsageError(f"Cannot write {target}: {error.strerror or error}") from error
    return setup


def _check_reward(reward: str, task_name: str, start: Start, levels: Levels) -> None:
    if reward not in get_args(RewardName):
        raise UsageError(f"No such reward: {reward!r}. Available: {', '.join(get_args(RewardName))}.")
    needed: tuple[Start, ...] = (start,) if reward == "success" else ("starter", "expert")
    if missing := [name for name in needed if levels.solution(name) is None]:
        raise UsageError(
            f"The {reward} of {task_name} is not defined for this data: the score of its {missing[0]} is not"
            " known. Measure it with: mlagentbench baseline"
        )


def _write_task(setup: Setup, target: Path) -> None:
    task, limits = setup.task, setup.task.config.limits
    target.mkdir(parents=True, exist_ok=True)
    statement = build_problem_statement(
        task, setup.edition, limits, detect_hardware(), start=setup.start, levels=setup.levels
    )
    (target / "instruction.md").write_text(f"{statement}{fill_prompt('harbor')}\n", encoding="utf-8")
    memory_mb, storage_mb = int(limits.memory_gb * 1024), int(limits.disk_gb * 1024)
    sections: dict[str, dict[str, object]] = {
        "task": {
            "name": f"mlagentbench/{task.name}",
            "version": task.hash[:16],
            "description": task.config.title,
        },
        "metadata": {
            "edition": setup.edition,
            "start": setup.start,
            "data": setup.data.hash,
            "metric": task.config.metric,
            "better": task.config.better,
        },
        "agent": {"timeout_sec": limits.hours * 3600},
        "environment": {
            "workdir": "/workspace",
            "network_mode": "no-network",
            "memory_mb": memory_mb,
            "storage_mb": storage_mb,
        },
        "verifier": {
            "timeout_sec": task.config.grading_minutes * 60,
            "environment_mode": "separate",
        },
        "verifier.environment": {
            "workdir": "/tests",
            "network_mode": "no-network",
            "memory_mb": max(memory_mb, MIN_VERIFIER_MB),
            "storage_mb": storage_mb + MIN_VERIFIER_MB,
        },
    }
    artifact = {"source": "/workspace", "exclude": _excluded_patterns(setup)}
    text = 'schema_version = "1.4"\n\n' + "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for name, values in sections.items()
    )
    text += "\n[[artifacts]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in artifact.items())
    (target / "task.toml").write_text(text, encoding="utf-8")


def _excluded_patterns(setup: Setup) -> list[str]:
    """What the verifier does not need: the public data, by the names that tar compares from the start."""
    return [f"./{path.name}" for path in sorted(setup.data.public.iterdir())]


def _write_environment(setup: Setup, folder: Path) -> None:
    runtime = setup.task.config.runtime
    _write_definition(folder, EnvironmentDefinition(runtime=runtime, folders={"workspace": "/workspace"}))
    _write_image(folder, runtime, AGENT_IMAGE)
    (folder / "workspace").mkdir()
    workspace = Workspace(folder / "workspace")
    workspace.copy_in(setup.data.public)
    workspace.copy_in(setup.task.starter)
    if setup.start != "starter":
        workspace.copy_in(setup.task.solution(setup.start))


def _write_solution(setup: Setup, folder: Path) -> None:
    has_expert = (setup.task.folder / "expert").is_dir()
    solution = setup.task.folder / ("expert" if setup.start != "starter" and has_expert else "reference")
    (folder / "files").mkdir(parents=True)
    Workspace(folder / "files").copy_in(solution)
    _write_script(folder / "solve.sh", SOLVE_SCRIPT.format(script=ENTRY_SCRIPT))


def _write_tests(setup: Setup, folder: Path, reward: str) -> None:
    _write_definition(folder, EnvironmentDefinition(runtime=GRADING_RUNTIME, folders={".": "/tests"}))
    _write_image(folder, GRADING_RUNTIME, VERIFIER_IMAGE)
    _write_script(folder / "test.sh", TEST_SCRIPT)
    task = setup.task
    (folder / "task").mkdir()
    Workspace(folder / "task").write("grade.py", (task.folder / "grade.py").read_bytes())
    (folder / "private").mkdir()
    Workspace(folder / "private").copy_in(setup.data.private)
    spec = setup.create_run_spec(AgentSpec(agent="harbor"), 0, task.config.limits)
    (folder / "run.json").write_text(spec.model_dump_json(indent=1))
    settings = {"submission": task.config.submission, "reward": reward}
    (folder / "settings.json").write_text(json.dumps(settings))
    shutil.copytree(PACKAGE, folder / "mlagentbench", ignore=NOT_FOR_GRADING)


def _write_definition(folder: Path, definition: EnvironmentDefinition) -> None:
    folder.mkdir(parents=True)
    (folder / DEFINITION_FILE).write_text(definition.model_dump_json(indent=1))


def _write_image(folder: Path, runtime: str, content: str) -> None:
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in read_requirements(runtime)))
    python = PYTHON_NAME.removeprefix("python")
    (folder / "Dockerfile").write_text(DOCKERFILE.format(python=python) + content)


def _write_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
