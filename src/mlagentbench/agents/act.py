"""Act: the model names actions without giving reasons."""

from pydantic import PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.environment.dialogue import (
    choose_next_call,
    describe_progress,
    render_step,
    system_and_user_messages,
)
from mlagentbench.language.prompts import fill_prompt, format_actions
from mlagentbench.records import Message


class Act(Agent):
    """Chooses one action after another; sees the last few steps."""

    needs_model = True
    prompt = "act"
    reply_fields: tuple[str, ...] = ()

    def __init__(self, seed: int = 0, window: PositiveInt = 5) -> None:
        super().__init__(seed)
        self.window = window

    def run(self, env: Environment) -> None:
        """Ask for an action and run it, until the run is over."""
        instructions = fill_prompt(
            self.prompt,
            task=env.problem_statement,
            actions=format_actions(env.actions),
            steps=str(env.spec.limits.steps),
        )

        def build_messages(max_chars: int) -> list[Message]:
            steps = [render_step(step, max_chars // self.window) for step in env.steps[-self.window :]]
            return system_and_user_messages(instructions, describe_progress(env, steps))

        while not env.done:
            call, _ = choose_next_call(env, build_messages, self.reply_fields)
            env.step(call)
