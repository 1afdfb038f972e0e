"""A task that takes milliseconds, and real runs of it: real sandboxes, real processes, real files."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from mlagentbench.agents.base import Agent
from mlagentbench.environment.environment import Environment
from mlagentbench.records import AgentSpec, Call, Limits, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run, open_environment, populate_workspace
from mlagentbench.runner.setup import Setup, prepare_setup

TOY = Path(__file__).parent / "toy"
Behaviour = Callable[[Environment], None]


def quiet(line: str) -> None:
    """Nobody listens."""


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], object]], None]:
    """Look again and again until something holds; for ever is twenty seconds."""

    def look(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline

    return look


@pytest.fixture(scope="session")
def toy() -> Path:
    """The folder of the toy task."""
    return TOY


@pytest.fixture(scope="session")
def setup() -> Setup:
    """The toy, ready to run."""
    return prepare_setup(str(TOY), "open", "bwrap", quiet)


@pytest.fixture
def variant(tmp_path: Path) -> Callable[..., Path]:
    """A copy of the toy with some of its files replaced: variant({"grade.py": "..."})."""

    def make(files: dict[str, str | None], place: str = "variant") -> Path:
        folder = tmp_path / place / "toy"  # the same name, so that its data is shared
        shutil.copytree(TOY, folder)
        for name, text in files.items():
            if text is None:
                path = folder / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            else:
                (folder / name).write_text(text)
        return folder

    return make


def limits_of(setup: Setup, limits: dict[str, Any]) -> Limits:
    """The task's limits, but for some."""
    return Limits.model_validate({**setup.task.config.limits.model_dump(), **limits})


@pytest.fixture
def open_env(setup: Setup, tmp_path: Path) -> Iterator[Callable[..., Environment]]:
    """Environments without an agent: open_env() begins one, open_env() again resumes it."""
    opened: list[Environment] = []

    def open_one(
        name: str = "run",
        setup: Setup = setup,
        person: Any = None,
        models: Any = MappingProxyType({}),
        **limits: Any,
    ) -> Environment:
        path = tmp_path / name
        if (path / "run.json").is_file():
            folder = RunFolder(path)
            folder.rewind()
        else:
            spec = setup.create_run_spec(
                AgentSpec(agent="nobody"), 0, limits_of(setup, limits), interactive=person is not None
            )
            folder = RunFolder.create(path, spec)
        env = open_environment(setup, folder, person, models)
        if not env.next_recorded_call:
            populate_workspace(env, setup)
        opened.append(env)
        return env

    yield open_one
    for env in opened:
        env.close()


@pytest.fixture
def env(open_env: Callable[..., Environment]) -> Environment:
    """A run that has just begun."""
    return open_env()


@pytest.fixture(scope="session")
def do() -> Callable[..., str]:
    """One step: do(env, "Write File", file_name=..., content=...)."""

    def step(env: Environment, action: str, **args: Any) -> str:
        return env.step(Call(action=action, args=args))

    return step


@pytest.fixture
def play(setup: Setup, tmp_path: Path) -> Callable[..., Result]:
    """A whole run, graded, whose agent is a function: play(lambda env: ...)."""

    def play_one(
        behaviour: Behaviour,
        name: str = "run",
        setup: Setup = setup,
        models: Any = MappingProxyType({}),
        from_step: int | None = None,
        **limits: Any,
    ) -> Result:
        class Played(Agent):
            def run(self, env: Environment) -> None:
                behaviour(env)

        agent = Played()
        agent.models = models
        path = tmp_path / name
        if (path / "run.json").is_file():
            folder = RunFolder(path)
        else:
            folder = RunFolder.create(
                path, setup.create_run_spec(AgentSpec(agent="played"), 0, limits_of(setup, limits))
            )
        with folder.lock():
            folder.rewind(from_step)
            return execute_run(setup, agent, folder)

    return play_one


@pytest.fixture(scope="session")
def cli() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """The command line, as a person would use it."""

    def call(*args: object, **options: Any) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-W", "error", "-m", "mlagentbench", *map(str, args)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, **{"timeout": 60, **options}
        )

    return call
