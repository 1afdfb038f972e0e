"""Fixtures: a task that takes milliseconds, and real runs of it in real sandboxes."""

import contextlib
import gc
import io
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import hypothesis
import pytest

from mlagentbench.agents.base import Agent
from mlagentbench.cli import app
from mlagentbench.environment.environment import Environment
from mlagentbench.records import AgentSpec, Call, Limits, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run, open_environment, populate_workspace
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.system.progress import ignore_progress

# Threads of BLAS wait actively, on cores that other workers need. Nothing above imports numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Garbage collection would visit the objects of all imported modules again and again.
gc.disable()
# A shell that starts the tests in the background makes them ignore Ctrl-C, and so every process they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
TOY = Path(__file__).parent / "toy"
if not os.access(Path.cwd(), os.W_OK):  # another user's checkout, in which no examples can be kept
    hypothesis.settings.register_profile("read-only", database=None)
    hypothesis.settings.load_profile("read-only")
Behaviour = Callable[[Environment], None]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition holds, at most twenty seconds: until(lambda: path.exists())."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.002)  # another process may need this core

    return wait


@pytest.fixture(scope="session")
def toy() -> Path:
    """The folder of the toy task."""
    return TOY


@pytest.fixture(scope="session")
def setup() -> Setup:
    """The toy task, prepared."""
    return prepare_setup(str(TOY), "open", "bwrap", ignore_progress)


@pytest.fixture
def variant(tmp_path: Path) -> Callable[..., Path]:
    """Copies the toy with some files replaced, or removed by None: variant({"grade.py": "..."})."""

    def copy_toy(files: dict[str, str | None], parent: str = "variant") -> Path:
        folder = tmp_path / parent / "toy"  # the same name, so that its data is shared
        shutil.copytree(TOY, folder)
        for name, text in files.items():
            if text is None:
                path = folder / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            else:
                (folder / name).write_text(text)
        return folder

    return copy_toy


def limits_of(setup: Setup, limits: dict[str, Any]) -> Limits:
    """The task's limits, with some replaced."""
    return Limits.model_validate({**setup.task.config.limits.model_dump(), **limits})


@pytest.fixture
def open_env(setup: Setup, tmp_path: Path) -> Iterator[Callable[..., Environment]]:
    """Opens environments without an agent: open_env() starts a run, open_env() again resumes it."""
    opened: list[Environment] = []

    def open_or_resume(
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
                AgentSpec(agent="none"), 0, limits_of(setup, limits), interactive=person is not None
            )
            folder = RunFolder.create(path, spec)
        env = open_environment(setup, folder, person, models)
        if not env.next_recorded_call:
            populate_workspace(env, setup)
        opened.append(env)
        return env

    yield open_or_resume
    for env in opened:
        env.close()


@pytest.fixture
def env(open_env: Callable[..., Environment]) -> Environment:
    """The environment of a new run."""
    return open_env()


@pytest.fixture(scope="session")
def do() -> Callable[..., str]:
    """Takes a step: do(env, "Write File", file_name=..., content=...)."""

    def step(env: Environment, action: str, **args: Any) -> str:
        return env.step(Call(action=action, args=args))

    return step


@pytest.fixture(scope="session")
def play_in() -> Callable[..., Result]:
    """Runs and grades an agent that is a function in a folder, or resumes its run there."""

    def run_or_resume(
        path: Path,
        behaviour: Behaviour,
        setup: Setup,
        models: Any = MappingProxyType({}),
        from_step: int | None = None,
        **limits: Any,
    ) -> Result:
        class FunctionAgent(Agent):
            def run(self, env: Environment) -> None:
                behaviour(env)

        agent = FunctionAgent()
        agent.models = models
        if (path / "run.json").is_file():
            folder = RunFolder(path)
        else:
            folder = RunFolder.create(
                path, setup.create_run_spec(AgentSpec(agent="played"), 0, limits_of(setup, limits))
            )
        with folder.lock():
            folder.rewind(from_step)
            return execute_run(setup, agent, folder)

    return run_or_resume


@pytest.fixture
def play(play_in: Callable[..., Result], setup: Setup, tmp_path: Path) -> Callable[..., Result]:
    """Runs and grades an agent that is a function, or resumes its run: play(lambda env: ...)."""

    def run_or_resume(
        behaviour: Behaviour, name: str = "run", setup: Setup = setup, **options: Any
    ) -> Result:
        return play_in(tmp_path / name, behaviour, setup, **options)

    return run_or_resume


@pytest.fixture
def unsaved_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of reports are drawn but not saved as files, which takes most of the time of a report."""
    empty_figure = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
    monkeypatch.setattr(
        "mlagentbench.pages.figures.style._save_figure", lambda figure, file_format, metadata: empty_figure
    )


@pytest.fixture(scope="session")
def cli() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a command in this process, without the half second that a new interpreter takes to import it."""

    def run_command(*args: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        command = ["mlagentbench", *map(str, args)]
        streams = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        with (
            contextlib.chdir(cwd or "."),
            contextlib.redirect_stdout(streams[0]),
            contextlib.redirect_stderr(streams[1]),
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(SystemExit) as caught,
        ):
            patch.setattr(sys, "argv", command)
            # Logging is configured by --verbose, as in a new process, and for this command only.
            patch.setattr(logging.getLogger(), "handlers", [])
            for logger in (logging.getLogger(), logging.getLogger("mlagentbench")):
                patch.setattr(logger, "level", logger.level)
            app.main()
        out, err = (stream.buffer.getvalue().decode() for stream in streams if not stream.flush())
        return subprocess.CompletedProcess(command, int(caught.value.code or 0), out, err)

    return run_command


@pytest.fixture(scope="session")
def cli_process() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a command in a process of its own, with warnings as errors."""

    def run_command(*args: object, **options: Any) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-W", "error", "-m", "mlagentbench", *map(str, args)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, **{"timeout": 60, **options}
        )

    return run_command
