"""The Python interface, kept stable: what `from mlagentbench import ...` gives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlagentbench.agents import base as agents
from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.records import Contestant, Result
from mlagentbench.runner import session as sessions
from mlagentbench.runner import start as starting
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.session import Session
from mlagentbench.runner.setup import new_place, set_up
from mlagentbench.task import Task
from mlagentbench.words import say

Behaviour = Callable[[Environment], None]
Played = type[Agent] | Agent | Behaviour
Player = str | Played
PREFIX = "python:"  # no agent of ours has such a name, so nobody looks for its code when a run is resumed or verified


def load_task(name: str) -> Task:
    """A task of the suite by its name, or the one in a folder."""
    return Task.load(name)


def read_run(folder: str | Path) -> RunFolder:
    """A run on disk: its `spec`, `steps()`, `calls()`, `result` and snapshots."""
    return RunFolder(Path(folder))


def run(
    task: str,
    agent: Player = "tuner",
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
    name = _name(agent)
    models = {"model": model, "fast_model": fast_model, "edit_model": edit_model}
    who = Contestant(agent=name, options=options or {}, **models)
    setup = set_up(task, edition, sandbox, say, instance, gpu)
    place = Path(out) if out else new_place(setup.task.name, name.removeprefix(PREFIX))
    worker = None if isinstance(agent, str) else _worker(agent, who, seed)
    return starting.start(setup, who, place, seed, limits, worker=worker)


def resume(folder: str | Path, agent: Played | None = None, *, from_step: int | None = None) -> Result:
    """Go on with a run that was stopped or killed; an agent that was not a name or a file must be given again."""
    spec = RunFolder(Path(folder)).spec
    worker = _worker(agent, spec, spec.seed) if agent else None
    return starting.proceed(Path(folder), from_step, say, worker=worker)


@contextmanager
def session(
    task: str,
    who: str = "session",
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
    setup = set_up(task, edition, sandbox, say, instance, gpu)
    place = Path(out) if out else new_place(setup.task.name, who)
    with sessions.session(setup, Contestant(agent=PREFIX + who, model=model), place, seed, limits) as opened:
        yield opened


@contextmanager
def resume_session(folder: str | Path, *, from_step: int | None = None) -> Iterator[Session]:
    """A session that was left or killed, where its record ends."""
    with sessions.resumed(Path(folder), say, from_step) as opened:
        yield opened


def _name(agent: Player) -> str:
    if isinstance(agent, str):
        return agent
    return PREFIX + str(getattr(agent, "__name__", type(agent).__name__))


def _worker(agent: Played, who: Contestant, seed: int) -> Agent:
    if isinstance(agent, type):
        worker = agents.make(agent, seed, who.options)
    elif isinstance(agent, Agent):
        worker = agent
    else:
        worker = _Function(seed, agent)
    worker.models = starting.models_of(who) or worker.models
    return worker


class _Function(Agent):
    """An agent that is only a function."""

    def __init__(self, seed: int, behaviour: Behaviour) -> None:
        super().__init__(seed)
        self.behaviour = behaviour

    def run(self, env: Environment) -> None:
        """Call it."""
        self.behaviour(env)
