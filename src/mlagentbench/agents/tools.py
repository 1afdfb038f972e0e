"""Tools: a plain loop with native tool calling, for current models."""

from collections.abc import Mapping, Sequence

from pydantic import PositiveInt

from mlagentbench.actions.base import Action
from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.environment.dialogue import (
    MAX_HISTORY_CHARS,
    MAX_REPLY_ATTEMPTS,
    MIN_HISTORY_CHARS,
    truncate_middle,
    unreadable_reply_call,
)
from mlagentbench.errors import PromptTooLong
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import Call, Message, Reply, Tool, ToolCall

Exchange = list[Message]  # a message of the model, and the results of the tools that it called


class Tools(Agent):
    """Calls actions as tools; keeps as much of the conversation as fits."""

    needs_model = True
    needs_tools = True

    def __init__(self, seed: int = 0, window: PositiveInt = 30) -> None:
        super().__init__(seed)
        self.window = window
        self.exchanges: list[Exchange] = []
        self.max_chars = MAX_HISTORY_CHARS

    def run(self, env: Environment) -> None:
        """Ask the model, run its tool calls and return their results, until the run is over."""
        system = fill_prompt("tools", task=env.problem_statement, steps=str(env.spec.limits.steps))
        opening = [Message(role="system", text=system), Message(role="user", text=fill_prompt("tools_begin"))]
        tools = build_tools(env.actions)
        idle = 0
        while not env.done:
            reply = self._ask(env, opening, tools)
            exchange = [Message(role="assistant", text=reply.text, calls=reply.calls)]
            for call in reply.calls:
                if env.done:
                    return
                observation = env.step(to_call(call, reply.text, env))
                exchange.append(Message(role="tool", text=observation, answers=call.id))
            idle = 0 if reply.calls else idle + 1
            if not reply.calls:
                exchange.append(Message(role="user", text=fill_prompt("tools_nudge")))
            if idle == MAX_REPLY_ATTEMPTS:
                idle = 0
                env.step(unreadable_reply_call(reply.text))
            self.exchanges.append(exchange)

    def _ask(self, env: Environment, opening: list[Message], tools: Sequence[Tool]) -> Reply:
        while True:
            try:
                return env.ask(
                    [*opening, *keep_recent_exchanges(self.exchanges[-self.window :], self.max_chars)],
                    tools=tools,
                )
            except PromptTooLong:
                self.max_chars //= 2
                if self.max_chars < MIN_HISTORY_CHARS:
                    raise


def build_tools(actions: Mapping[str, Action]) -> list[Tool]:
    """The actions as tools."""
    return [
        Tool(name=tool_name(action.name), description=action.description, parameters=action.schema)
        for action in actions.values()
    ]


def tool_name(action: str) -> str:
    """The action's name in the form that every provider accepts."""
    return action.lower().replace(" ", "_").replace("(", "").replace(")", "")


def to_call(call: ToolCall, thought: str, env: Environment) -> Call:
    """The call behind a tool call; unreadable arguments are left for the environment to reject."""
    action = next((name for name in env.actions if tool_name(name) == call.name), call.name)
    try:
        args = parse_object(call.arguments) if call.arguments.strip() else {}
    except UnreadableObject:
        args = {"arguments": call.arguments}
    return Call(action=action, args=args, thought=thought)


def keep_recent_exchanges(exchanges: Sequence[Exchange], max_chars: int) -> list[Message]:
    """The last exchanges that fit, each complete, because providers reject calls without results."""
    kept: list[Message] = []
    for exchange in reversed(exchanges):
        short = [message.replace(text=truncate_middle(message.text, max_chars // 4)) for message in exchange]
        max_chars -= sum(
            len(message.text) + sum(len(call.arguments) for call in message.calls) for message in short
        )
        if max_chars < 0 and kept:
            break
        kept = [*short, *kept]
    return kept
