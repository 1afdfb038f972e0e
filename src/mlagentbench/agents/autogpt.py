"""AutoGPT-like: goals, thoughts and a command as JSON in every reply, and a running summary for a memory."""

from collections.abc import Mapping

from pydantic import PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.dialogue import cut, decide, messages, situation, told
from mlagentbench.environment import Environment
from mlagentbench.errors import PromptTooLong
from mlagentbench.language.objects import Unreadable, read_object
from mlagentbench.language.prompts import fill, offer
from mlagentbench.language.replies import Doable, Misread, arguments, named
from mlagentbench.records import Call, Message

SUMMARY, STEP = 4_000, 10_000  # characters


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
        instructions = fill("autogpt", task=env.task.description, actions=offer(env.actions), steps=limit)

        def show(room: int) -> list[Message]:
            view = [told(step, room // self.window) for step in env.steps[-self.window :]]
            return messages(instructions, situation(env, view, f"What you remember:\n{cut(self.summary, room)}"))

        while not env.done:
            call, _ = decide(env, show, read=lambda said: (read_command(said, env.actions), {}))
            env.step(call)
            if not env.done:
                self._remember(env)

    def _remember(self, env: Environment) -> None:
        text = fill("autogpt_summary", summary=self.summary, step=told(env.steps[-1], STEP))
        try:
            self.summary = cut(env.ask([Message(role="user", text=text)], "fast").text, SUMMARY)
        except PromptTooLong:
            self.summary = cut(f"{self.summary}\n{told(env.steps[-1], SUMMARY // 4)}", SUMMARY)


def read_command(said: str, actions: Mapping[str, Doable]) -> Call:
    """The command that a reply asks for, and the thoughts before it."""
    try:
        reply = read_object(said, ("thoughts", "text", "reasoning", "plan", "criticism", "command", "name", "args"))
    except Unreadable as error:
        raise Misread(fill("autogpt_form", problem=f"The reply cannot be read: {error}.")) from error
    command = reply.get("command")
    if not isinstance(command, dict):
        raise Misread(fill("autogpt_form", problem="The reply has no command."))
    action = named(str(command.get("name", "")), actions)
    if action is None:
        known = f"There is no command {str(command.get('name'))[:100]!r}. There are: {', '.join(actions)}."
        raise Misread(fill("autogpt_form", problem=known))
    thoughts = reply.get("thoughts")
    thought = "\n".join(f"{name}: {text}" for name, text in thoughts.items()) if isinstance(thoughts, dict) else ""
    args = command.get("args", {})
    return Call(
        action=action.name, args=args if isinstance(args, dict) else arguments(str(args), action), thought=thought
    )
