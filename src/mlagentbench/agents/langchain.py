"""LangChain: that library's agent with our actions as tools and our model (extra: langchain)."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mlagentbench.agents.base import Agent
from mlagentbench.agents.tools import Exchange, keep_recent_exchanges, tool_name
from mlagentbench.environment import Environment
from mlagentbench.environment.dialogue import MAX_HISTORY_CHARS, MIN_HISTORY_CHARS
from mlagentbench.errors import PromptTooLong, UsageError
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import Call, Message, Reply, Tool, ToolCall
from mlagentbench.system.extras import install_command

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.tools import BaseTool

MAX_LANGCHAIN_TURNS = 100_000  # of LangChain's own loop; our limits end a run long before


class Langchain(Agent):
    """LangChain's agent with our actions as its tools."""

    needs_model = True
    needs_tools = True

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        if not find_spec("langchain"):
            raise UsageError(
                f"The agent langchain needs an extra. Install it: {install_command('langchain')}"
            )

    def run(self, env: Environment) -> None:
        """Run LangChain's agent until the run is over; if it stops without submitting, ask it to continue."""
        from langchain.agents import create_agent
        from langchain_core.messages import HumanMessage

        system = fill_prompt("tools", task=env.problem_statement, steps=str(env.spec.limits.steps))
        agent: Any = create_agent(
            to_langchain_model(env),
            [to_langchain_tool(env, name) for name in env.actions],
            system_prompt=system,
        )
        conversation: list[Any] = [HumanMessage(fill_prompt("tools_begin"))]
        while not env.done:
            conversation = agent.invoke({"messages": conversation}, {"recursion_limit": MAX_LANGCHAIN_TURNS})[
                "messages"
            ]
            conversation.append(HumanMessage(fill_prompt("tools_nudge")))


def to_langchain_tool(env: Environment, name: str) -> "BaseTool":
    """An action as a LangChain tool."""
    from langchain_core.tools import StructuredTool

    action = env.actions[name]

    def act(**args: Any) -> str:
        return env.step(Call(action=name, args=args))

    return StructuredTool.from_function(
        act, name=tool_name(name), description=action.description, args_schema=action.schema
    )


def to_langchain_model(env: Environment) -> "BaseChatModel":
    """Our model as a LangChain chat model; every call goes through the environment."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.utils.function_calling import convert_to_openai_tool

    class EnvironmentChatModel(BaseChatModel):
        _llm_type = "mlagentbench"

        def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
            return self.bind(tools=[convert_to_openai_tool(tool)["function"] for tool in tools])

        def _generate(
            self, messages: list[Any], stop: Any = None, run_manager: Any = None, **kwargs: Any
        ) -> ChatResult:
            definitions = [Tool(**tool) for tool in kwargs.get("tools", ())]
            reply = ask_with_truncation(
                env, [from_langchain_message(message) for message in messages], stop or (), definitions
            )
            return ChatResult(generations=[ChatGeneration(message=to_langchain_message(reply))])

    return EnvironmentChatModel()


def ask_with_truncation(
    env: Environment, messages: list[Message], stop: Sequence[str], tools: Sequence[Tool]
) -> Reply:
    """The reply to as much of the conversation as the model accepts."""
    first = next(
        (index for index, message in enumerate(messages) if message.role == "assistant"), len(messages)
    )
    exchanges: list[Exchange] = []
    for message in messages[first:]:
        if message.role == "assistant":
            exchanges.append([])
        exchanges[-1].append(message)
    max_chars = MAX_HISTORY_CHARS
    while True:
        try:
            return env.ask(
                [*messages[:first], *keep_recent_exchanges(exchanges, max_chars)], stop=stop, tools=tools
            )
        except PromptTooLong:
            max_chars //= 2
            if max_chars < MIN_HISTORY_CHARS:
                raise


def from_langchain_message(message: "BaseMessage") -> Message:
    """A LangChain message as one of our messages."""
    import json

    role: Any = {"system": "system", "human": "user", "ai": "assistant", "tool": "tool"}[message.type]
    calls = [
        ToolCall(id=call["id"] or "", name=call["name"], arguments=json.dumps(call["args"]))
        for call in getattr(message, "tool_calls", ())
    ]
    return Message(
        role=role, text=str(message.text), calls=tuple(calls), answers=getattr(message, "tool_call_id", "")
    )


def to_langchain_message(reply: Reply) -> "AIMessage":
    """One of our replies as a LangChain message."""
    from langchain_core.messages import AIMessage

    from mlagentbench.language.lenient_json import UnreadableObject, parse_object

    calls = []
    for call in reply.calls[:1]:  # LangChain would run several calls at the same time, in threads
        try:
            args = parse_object(call.arguments) if call.arguments.strip() else {}
        except UnreadableObject:
            args = {"arguments": call.arguments}
        calls.append({"name": call.name, "args": args, "id": call.id, "type": "tool_call"})
    return AIMessage(content=reply.text, tool_calls=calls)
