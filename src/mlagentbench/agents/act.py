"""Act: the model names actions, and gives no reasons."""

from pydantic import PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.environment.dialogue import (
    choose_next_call,
    describe_progress,
    render_step,
    system_and_user_messages,
)
from mlagentbench.environment.environment import Environment
from mlagentbench.language.prompts import fill_prompt, format_actions
from mlagentbench.records import Message


class Act(Agent):
    """Picks one action after another; the last few are in view."""

    needs_model = True
    prompt = "act"
    reply_fields: tuple[str, ...] = ()

    def __init__(self, seed: int = 0, window: PositiveInt = 5) -> None:
        super().__init__(seed)
        self.window = window

    def run(self, env: Environment) -> None:
        """Ask and act in turn until it is over."""
        limit = str(env.spec.limits.steps)
        instructions = fill_prompt(
            self.prompt, task=env.task.description, actions=format_actions(env.actions), steps=limit
        )

        def show(room: int) -> list[Message]:
            view = [render_step(step, room // self.window) for step in env.steps[-self.window :]]
            return system_and_user_messages(instructions, describe_progress(env, view))

        while not env.done:
            call, _ = choose_next_call(env, show, self.reply_fields)
            env.step(call)
