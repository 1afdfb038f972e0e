"""AutoGPT: replies are JSON with thoughts and a command; a running summary is the memory."""

from collections.abc import Mapping

from pydantic import PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.environment.dialogue import (
    choose_next_call,
    describe_progress,
    render_step,
    system_and_user_messages,
    truncate_middle,
)
from mlagentbench.errors import PromptTooLong
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.language.prompts import fill_prompt, format_actions
from mlagentbench.language.replies import ActionInterface, UnreadableReply, match_action, parse_arguments
from mlagentbench.records import Call, Message

REPLY_KEYS = ("thoughts", "text", "reasoning", "plan", "criticism", "command", "name", "args")
MAX_SUMMARY_CHARS, MAX_STEP_CHARS = 4_000, 10_000


class Autogpt(Agent):
    """Thinks, plans and criticises itself in JSON; rewrites a summary after each step."""

    needs_model = True

    def __init__(self, seed: int = 0, window: PositiveInt = 3) -> None:
        super().__init__(seed)
        self.window = window
        self.summary = "Nothing has been done yet."

    def run(self, env: Environment) -> None:
        """Run one command after another, and update the summary after each."""
        instructions = fill_prompt(
            "autogpt",
            task=env.problem_statement,
            actions=format_actions(env.actions),
            steps=str(env.spec.limits.steps),
        )

        def build_messages(max_chars: int) -> list[Message]:
            steps = [render_step(step, max_chars // self.window) for step in env.steps[-self.window :]]
            memory = f"What you remember:\n{truncate_middle(self.summary, max_chars)}"
            return system_and_user_messages(instructions, describe_progress(env, steps, memory))

        def parse(reply: str) -> tuple[Call, dict[str, str]]:
            return read_command(reply, env.actions), {}

        while not env.done:
            call, _ = choose_next_call(env, build_messages, parse=parse)
            env.step(call)
            if not env.done:
                self._update_summary(env)

    def _update_summary(self, env: Environment) -> None:
        step = env.steps[-1]
        question = fill_prompt(
            "autogpt_summary", summary=self.summary, step=render_step(step, MAX_STEP_CHARS)
        )
        try:
            summary = env.ask([Message(role="user", text=question)], "fast").text
        except PromptTooLong:
            summary = f"{self.summary}\n{render_step(step, MAX_SUMMARY_CHARS // 4)}"
        self.summary = truncate_middle(summary, MAX_SUMMARY_CHARS)


def read_command(text: str, actions: Mapping[str, ActionInterface]) -> Call:
    """The command in a reply, with the thoughts before it.

    Raises:
        UnreadableReply: The reply is not JSON, or names no known command.
    """
    try:
        reply = parse_object(text, REPLY_KEYS)
    except UnreadableObject as error:
        raise UnreadableReply(
            fill_prompt("autogpt_form", problem=f"The reply cannot be read: {error}.")
        ) from error
    command = reply.get("command")
    if not isinstance(command, dict):
        raise UnreadableReply(fill_prompt("autogpt_form", problem="The reply has no command."))
    action = match_action(str(command.get("name", "")), actions)
    if action is None:
        name = str(command.get("name"))[:100]
        problem = f"No such command: {name!r}. Available: {', '.join(actions)}."
        raise UnreadableReply(fill_prompt("autogpt_form", problem=problem))
    thoughts = reply.get("thoughts")
    thought = (
        "\n".join(f"{name}: {text}" for name, text in thoughts.items()) if isinstance(thoughts, dict) else ""
    )
    args = command.get("args", {})
    if not isinstance(args, dict):
        args = parse_arguments(str(args), action)
    return Call(action=action.name, args=args, thought=thought)
