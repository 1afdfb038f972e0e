"""AutoGPT-like: goals, thoughts and a command as JSON in every reply, and a running summary for a memory."""

from collections.abc import Mapping

from pydantic import PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.environment.dialogue import (
    choose_next_call,
    describe_progress,
    render_step,
    system_and_user_messages,
    truncate_middle,
)
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import PromptTooLong
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.language.prompts import fill_prompt, format_actions
from mlagentbench.language.replies import ActionInterface, UnreadableReply, match_action, parse_arguments
from mlagentbench.records import Call, Message

MAX_SUMMARY_CHARS, MAX_STEP_CHARS = 4_000, 10_000  # characters


class Autogpt(Agent):
    """Thinks, plans and criticises itself in JSON; remembers by a summary that it keeps rewriting."""

    needs_model = True

    def __init__(self, seed: int = 0, window: PositiveInt = 3) -> None:
        super().__init__(seed)
        self.window = window
        self.summary = "Nothing has been done yet."

    def run(self, env: Environment) -> None:
        """Command after command, each followed by a new summary."""
        limit = str(env.spec.limits.steps)
        instructions = fill_prompt(
            "autogpt", task=env.task.description, actions=format_actions(env.actions), steps=limit
        )

        def show(room: int) -> list[Message]:
            view = [render_step(step, room // self.window) for step in env.steps[-self.window :]]
            return system_and_user_messages(
                instructions,
                describe_progress(env, view, f"What you remember:\n{truncate_middle(self.summary, room)}"),
            )

        while not env.done:
            call, _ = choose_next_call(env, show, parse=lambda said: (read_command(said, env.actions), {}))
            env.step(call)
            if not env.done:
                self._update_summary(env)

    def _update_summary(self, env: Environment) -> None:
        text = fill_prompt(
            "autogpt_summary", summary=self.summary, step=render_step(env.steps[-1], MAX_STEP_CHARS)
        )
        try:
            self.summary = truncate_middle(
                env.ask([Message(role="user", text=text)], "fast").text, MAX_SUMMARY_CHARS
            )
        except PromptTooLong:
            self.summary = truncate_middle(
                f"{self.summary}\n{render_step(env.steps[-1], MAX_SUMMARY_CHARS // 4)}", MAX_SUMMARY_CHARS
            )


def read_command(said: str, actions: Mapping[str, ActionInterface]) -> Call:
    """The command that a reply asks for, and the thoughts before it."""
    try:
        reply = parse_object(
            said, ("thoughts", "text", "reasoning", "plan", "criticism", "command", "name", "args")
        )
    except UnreadableObject as error:
        raise UnreadableReply(
            fill_prompt("autogpt_form", problem=f"The reply cannot be read: {error}.")
        ) from error
    command = reply.get("command")
    if not isinstance(command, dict):
        raise UnreadableReply(fill_prompt("autogpt_form", problem="The reply has no command."))
    action = match_action(str(command.get("name", "")), actions)
    if action is None:
        known = f"There is no command {str(command.get('name'))[:100]!r}. There are: {', '.join(actions)}."
        raise UnreadableReply(fill_prompt("autogpt_form", problem=known))
    thoughts = reply.get("thoughts")
    thought = (
        "\n".join(f"{name}: {text}" for name, text in thoughts.items()) if isinstance(thoughts, dict) else ""
    )
    args = command.get("args", {})
    return Call(
        action=action.name,
        args=args if isinstance(args, dict) else parse_arguments(str(args), action),
        thought=thought,
    )
