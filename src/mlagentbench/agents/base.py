"""What an agent must do, and how one is found."""

from abc import ABC, abstractmethod
from pathlib import Path
from random import Random

from mlagentbench import discovery
from mlagentbench.environment import Environment
from mlagentbench.errors import UsageError


class Agent(ABC):
    """Something that works on a task until the environment is done.

    Limits, recording, errors and resuming are the environment's business. An agent that draws random numbers takes
    them from `self.random`, and reads the time from `env.steps`: then a resumed run repeats itself by itself.
    """

    contestant = True  # False for those that see more than a contestant may
    interactive = False

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)

    @abstractmethod
    def run(self, env: Environment) -> None:
        """Work until `env.done`."""


def load(name: str) -> type[Agent]:
    """An agent by its name, or from a file."""
    if name.endswith(".py"):
        return discovery.only_subclass(discovery.module_at(Path(name)), Agent)  # type: ignore[type-abstract]
    if name not in discovery.names("agents"):
        known = ", ".join(discovery.names("agents"))
        raise UsageError(f"no agent {name!r}; there are: {known}; or give a file: --agent PATH.py")
    return discovery.only_subclass(discovery.plugin("agents", name), Agent)  # type: ignore[type-abstract]


def make(kind: type[Agent], seed: int) -> Agent:
    """An agent ready to run."""
    try:
        return kind(seed)
    except Exception as error:
        raise UsageError(f"the agent {kind.__name__} cannot be made: {type(error).__name__}: {error}") from error
