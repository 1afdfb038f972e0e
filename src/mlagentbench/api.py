"""The Python interface, kept stable: what `from mlagentbench import ...` gives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlagentbench.agents import base as agents
from mlagentbench.agents.base import Agent
from mlagentbench.environment.environment import Environment
from mlagentbench.formatting import print_progress
from mlagentbench.records import AgentSpec, Result
from mlagentbench.runner import session as sessions
from mlagentbench.runner import start as starting
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.session import Session
from mlagentbench.runner.setup import choose_run_folder, prepare_setup
from mlagentbench.task import Task

AgentFunction = Callable[[Environment], None]
AgentLike = type[Agent] | Agent | AgentFunction
AgentOrName = str | AgentLike
PYTHON_AGENT_PREFIX = "python:"  # no agent of ours has such a name, so nobody looks for its code when a run is resumed or verified


def load_task(name: str) -> Task:
    """A task of the suite by its name, or the one in a folder."""
    return Task.load(name)


def read_run(folder: str | Path) -> RunFolder:
    """A run on disk: its `spec`, `steps()`, `calls()`, `result` and snapshots."""
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
    sandbox: str = "bwrap",
    instance: str = "",
    gpu: str = "",
) -> Result:
    """Let an agent work on a task, and grade what it leaves.

    The agent is a name, a file PATH.py, a class, an object, or just a function of the environment; the task is a name
    or a folder. `limits` are fields of `Limits`. Whatever the agent does wrong is in the result; only a person's
    mistake is raised, as a UsageError.
    """
    name = _agent_name(agent)
    models = {"model": model, "fast_model": fast_model, "edit_model": edit_model}
    who = AgentSpec(agent=name, options=options or {}, **models)
    setup = prepare_setup(task, edition, sandbox, print_progress, instance, gpu)
    place = Path(out) if out else choose_run_folder(setup.task.name, name.removeprefix(PYTHON_AGENT_PREFIX))
    worker = None if isinstance(agent, str) else _build_agent(agent, who, seed)
    return starting.start_run(setup, who, place, seed, limits, agent=worker)


def resume(folder: str | Path, agent: AgentLike | None = None, *, from_step: int | None = None) -> Result:
    """Go on with a run that was stopped or killed; an agent that was not a name or a file must be given again."""
    spec = RunFolder(Path(folder)).spec
    worker = _build_agent(agent, spec, spec.seed) if agent else None
    return starting.resume_run(Path(folder), from_step, print_progress, agent=worker)


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
    sandbox: str = "bwrap",
    instance: str = "",
    gpu: str = "",
) -> Iterator[Session]:
    """A run whose steps you take yourself: graded at the end of the block, left to be resumed if the block raises."""
    setup = prepare_setup(task, edition, sandbox, print_progress, instance, gpu)
    place = Path(out) if out else choose_run_folder(setup.task.name, name)
    with sessions.open_session(
        setup, AgentSpec(agent=PYTHON_AGENT_PREFIX + name, model=model), place, seed, limits
    ) as opened:
        yield opened


@contextmanager
def resume_session(folder: str | Path, *, from_step: int | None = None) -> Iterator[Session]:
    """A session that was left or killed, where its record ends."""
    with sessions.reopen_session(Path(folder), print_progress, from_step) as opened:
        yield opened


def _agent_name(agent: AgentOrName) -> str:
    if isinstance(agent, str):
        return agent
    return PYTHON_AGENT_PREFIX + str(getattr(agent, "__name__", type(agent).__name__))


def _build_agent(agent: AgentLike, who: AgentSpec, seed: int) -> Agent:
    if isinstance(agent, type):
        worker = agents.instantiate_agent(agent, seed, who.options)
    elif isinstance(agent, Agent):
        worker = agent
    else:
        worker = _FunctionAgent(seed, agent)
    worker.models = starting.load_models(who) or worker.models
    return worker


class _FunctionAgent(Agent):
    """An agent that is only a function."""

    def __init__(self, seed: int, behaviour: AgentFunction) -> None:
        super().__init__(seed)
        self.function = behaviour

    def run(self, env: Environment) -> None:
        """Call it."""
        self.function(env)
