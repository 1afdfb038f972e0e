"""What an agent must do."""

from abc import ABC, abstractmethod
from random import Random

from mlagentbench.environment import Environment


class Agent(ABC):
    """Something that works on a task until the environment is done.

    Limits, recording, errors and resuming are the environment's business. An agent that draws random numbers takes
    them from `self.random`, and asks `env.clock` for the time: then a resumed run repeats itself by itself.
    """

    contestant = True  # False for those that see more than a contestant may
    interactive = False

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)

    @abstractmethod
    def run(self, env: Environment) -> None:
        """Work until `env.done`."""
