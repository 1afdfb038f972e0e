"""Act: the model names actions, and gives no reasons."""

from pydantic import PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.dialogue import decide, messages, situation, told
from mlagentbench.environment import Environment
from mlagentbench.language.prompts import fill, offer
from mlagentbench.records import Message


class Act(Agent):
    """Picks one action after another; the last few are in view."""

    needs_model = True
    prompt = "act"
    entries: tuple[str, ...] = ()

    def __init__(self, seed: int = 0, window: PositiveInt = 5) -> None:
        super().__init__(seed)
        self.window = window

    def run(self, env: Environment) -> None:
        """Ask and act in turn until it is over."""
        limit = str(env.spec.limits.steps)
        instructions = fill(self.prompt, task=env.task.description, actions=offer(env.actions), steps=limit)

        def show(room: int) -> list[Message]:
            view = [told(step, room // self.window) for step in env.steps[-self.window :]]
            return messages(instructions, situation(env, view))

        while not env.done:
            call, _ = decide(env, show, self.entries)
            env.step(call)
