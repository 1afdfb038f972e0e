"""Lets the model choose one action after another: replace what it is shown by your own prompt."""

from mlagentbench import Agent, Environment
from mlagentbench.environment.dialogue import (
    choose_next_call,
    describe_progress,
    render_step,
    system_and_user_messages,
)
from mlagentbench.language.prompts import format_actions
from mlagentbench.records import Message


class Skeleton(Agent):
    """Shows the model the task, the actions and the last two steps."""

    needs_model = True

    def run(self, env: Environment) -> None:
        """Ask for the next action until the run is over."""
        instructions = f"{env.problem_statement}\n\nActions:\n\n{format_actions(env.actions)}"

        def build_messages(max_chars: int) -> list[Message]:
            steps = [render_step(step, max_chars // 2) for step in env.steps[-2:]]
            return system_and_user_messages(instructions, describe_progress(env, steps))

        while not env.done:
            call, _ = choose_next_call(env, build_messages)
            env.step(call)
