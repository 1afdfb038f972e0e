"""The functions of `from mlagentbench import ...`. Their names and arguments are kept stable."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlagentbench.agents import base as agents
from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.formatting import print_progress
from mlagentbench.records import AgentSpec, Result, Start
from mlagentbench.runner import session as sessions
from mlagentbench.runner import start as starting
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.session import Session
from mlagentbench.runner.setup import choose_run_folder, prepare_setup
from mlagentbench.task import Task

AgentFunction = Callable[[Environment], None]
AgentLike = type[Agent] | Agent | AgentFunction
AgentOrName = str | AgentLike
# No built-in agent has such a name, so no code is looked up when a run is resumed or verified.
PYTHON_AGENT_PREFIX = "python:"


def load_task(name: str) -> Task:
    """Load a task.

    Args:
        name: The name of a task, or a folder with a task.toml.

    Returns:
        The task: its `description`, `config`, `folder` and `starter`.

    Raises:
        UsageError: There is no such task, or its folder is incomplete.
    """
    return Task.load(name)


def read_run(folder: str | Path) -> RunFolder:
    """Open a run on disk.

    Args:
        folder: The run folder.

    Returns:
        The run: its `spec`, `steps()`, `calls()`, `result` and snapshots.

    Raises:
        UsageError: The folder is not a run, or is damaged.
    """
    return RunFolder(Path(folder))


def run(
    task: str,
    agent: AgentOrName = "tuner",
    *,
    out: str | Path | None = None,
    seed: int = 0,
    limits: dict[str, Any] | None = None,
    edition: str = "open",
    model: str = "",
    fast_model: str = "",
    edit_model: str = "",
    options: dict[str, Any] | None = None,
    sandbox: str = "auto",
    instance: str = "",
    gpu: str = "",
    start: Start = "starter",
) -> Result:
    """Let an agent work on a task, and grade its submission.

    Args:
        task: The name of a task, or a folder with a task.toml.
        agent: A name, a file PATH.py, a class, an object, or a function of the environment.
        out: The run folder; by default a new one below `runs/`.
        seed: The seed of the agent and its scripts.
        limits: Fields of `Limits` to change, such as `{"steps": 10}`.
        edition: "open" or "paper".
        model: The agent's model.
        fast_model: The model for summaries and reading files.
        edit_model: The model for rewriting scripts.
        options: Options of the agent.
        sandbox: The sandbox, as on the command line.
        instance: Data made by `prepare --fresh` or `--twin`.
        gpu: The GPUs that scripts may use.
        start: The solution that the agent starts from: "starter", "reference" or "expert".

    Returns:
        The result. Whatever the agent did wrong is in it; it is not raised.

    Raises:
        UsageError: An argument is wrong.
    """
    name = _agent_name(agent)
    models = {"model": model, "fast_model": fast_model, "edit_model": edit_model}
    agent_spec = AgentSpec(agent=name, options=options or {}, **models)
    setup = prepare_setup(task, edition, sandbox, print_progress, instance, gpu, start=start)
    folder = Path(out) if out else choose_run_folder(setup.task.name, name.removeprefix(PYTHON_AGENT_PREFIX))
    agent_object = None if isinstance(agent, str) else _build_agent(agent, agent_spec, seed)
    return starting.start_run(setup, agent_spec, folder, seed, limits, agent=agent_object)


def resume(folder: str | Path, agent: AgentLike | None = None, *, from_step: int | None = None) -> Result:
    """Continue a run that was stopped or killed.

    Args:
        folder: The run folder.
        agent: The agent, if the run was started with a class, an object or a function.
        from_step: Discard everything after this step first.

    Returns:
        The result.

    Raises:
        UsageError: The run cannot be resumed; the message says why.
    """
    spec = RunFolder(Path(folder)).spec
    agent_object = _build_agent(agent, spec, spec.seed) if agent else None
    return starting.resume_run(Path(folder), from_step, print_progress, agent=agent_object)


@contextmanager
def session(
    task: str,
    name: str = "session",
    *,
    out: str | Path | None = None,
    seed: int = 0,
    limits: dict[str, Any] | None = None,
    edition: str = "open",
    model: str = "",
    sandbox: str = "auto",
    instance: str = "",
    gpu: str = "",
    start: Start = "starter",
) -> Iterator[Session]:
    """A run whose steps you take yourself, as a context manager.

    The submission is graded at the end of the block. If the block raises, the run is left to be resumed.

    Args:
        task: The name of a task, or a folder with a task.toml.
        name: The agent's name in the record.
        out: The run folder; by default a new one below `runs/`.
        seed: The seed of the scripts.
        limits: Fields of `Limits` to change.
        edition: "open" or "paper".
        model: The model for actions that need one.
        sandbox: The sandbox, as on the command line.
        instance: Data made by `prepare --fresh` or `--twin`.
        gpu: The GPUs that scripts may use.
        start: The solution that the agent starts from: "starter", "reference" or "expert".

    Yields:
        The session: `step(call)`, `remaining_budget`, and after the block `result`.

    Raises:
        UsageError: An argument is wrong.
    """
    setup = prepare_setup(task, edition, sandbox, print_progress, instance, gpu, start=start)
    folder = Path(out) if out else choose_run_folder(setup.task.name, name)
    agent_spec = AgentSpec(agent=PYTHON_AGENT_PREFIX + name, model=model)
    with sessions.open_session(setup, agent_spec, folder, seed, limits) as opened:
        yield opened


@contextmanager
def resume_session(folder: str | Path, *, from_step: int | None = None) -> Iterator[Session]:
    """A session that was left or killed, continued where its record ends.

    Args:
        folder: The run folder.
        from_step: Discard everything after this step first.

    Yields:
        The session.

    Raises:
        UsageError: The run cannot be resumed.
    """
    with sessions.reopen_session(Path(folder), print_progress, from_step) as opened:
        yield opened


def _agent_name(agent: AgentOrName) -> str:
    if isinstance(agent, str):
        return agent
    return PYTHON_AGENT_PREFIX + str(getattr(agent, "__name__", type(agent).__name__))


def _build_agent(agent: AgentLike, agent_spec: AgentSpec, seed: int) -> Agent:
    if isinstance(agent, type):
        built = agents.instantiate_agent(agent, seed, agent_spec.options)
    elif isinstance(agent, Agent):
        built = agent
    else:
        built = _FunctionAgent(seed, agent)
    built.models = starting.load_models(agent_spec) or built.models
    return built


class _FunctionAgent(Agent):
    """An agent that is a plain function."""

    def __init__(self, seed: int, function: AgentFunction) -> None:
        super().__init__(seed)
        self.function = function

    def run(self, env: Environment) -> None:
        """Call the function."""
        self.function(env)
