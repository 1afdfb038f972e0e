"""LangChain: that library's own agent over our actions and our model (extra: langchain)."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mlagentbench.agents.base import Agent
from mlagentbench.agents.tools import Exchange, keep_recent_exchanges, tool_name
from mlagentbench.environment.dialogue import MAX_HISTORY_CHARS, MIN_HISTORY_CHARS
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import PromptTooLong, UsageError
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import Call, Message, Reply, Tool, ToolCall

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.tools import BaseTool

MAX_LANGCHAIN_TURNS = 100_000  # turns of LangChain's own loop: our limits end a run long before


class Langchain(Agent):
    """Whatever LangChain's agent does with our actions as its tools."""

    needs_model = True

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        if not find_spec("langchain"):
            raise UsageError("the agent langchain needs an extra: pip install 'mlagentbench[langchain]'")

    def run(self, env: Environment) -> None:
        """Let it work until it stops by itself or the run is over; who stops without submitting is asked to go on."""
        from langchain.agents import create_agent
        from langchain_core.messages import HumanMessage

        system = fill_prompt("tools", task=env.task.description, steps=str(env.spec.limits.steps))
        agent: Any = create_agent(
            to_langchain_model(env),
            [to_langchain_tool(env, name) for name in env.actions],
            system_prompt=system,
        )
        talk: list[Any] = [HumanMessage(fill_prompt("tools_begin"))]
        while not env.done:
            talk = agent.invoke({"messages": talk}, {"recursion_limit": MAX_LANGCHAIN_TURNS})["messages"]
            talk.append(HumanMessage(fill_prompt("tools_nudge")))


def to_langchain_tool(env: Environment, name: str) -> "BaseTool":
    """An action as LangChain's agent calls it."""
    from langchain_core.tools import StructuredTool

    action = env.actions[name]

    def act(**args: Any) -> str:
        return env.step(Call(action=name, args=args))

    return StructuredTool.from_function(
        act, name=tool_name(name), description=action.description, args_schema=action.schema
    )


def to_langchain_model(env: Environment) -> "BaseChatModel":
    """Our model as LangChain asks it: every question goes through the environment, with its record and its budget."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.utils.function_calling import convert_to_openai_tool

    class Asked(BaseChatModel):
        _llm_type = "mlagentbench"

        def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
            return self.bind(tools=[convert_to_openai_tool(each)["function"] for each in tools])

        def _generate(
            self, messages: list[Any], stop: Any = None, run_manager: Any = None, **kwargs: Any
        ) -> ChatResult:
            offered = [Tool(**each) for each in kwargs.get("tools", ())]
            reply = ask_with_truncation(
                env, [from_langchain_message(message) for message in messages], stop or (), offered
            )
            return ChatResult(generations=[ChatGeneration(message=to_langchain_message(reply))])

    return Asked()


def ask_with_truncation(
    env: Environment, talk: list[Message], stop: Sequence[str], tools: Sequence[Tool]
) -> Reply:
    """The reply to as much of the talk as the model can take."""
    begin = next((place for place, message in enumerate(talk) if message.role == "assistant"), len(talk))
    exchanges: list[Exchange] = []
    for message in talk[begin:]:
        if message.role == "assistant":
            exchanges.append([])
        exchanges[-1].append(message)
    room = MAX_HISTORY_CHARS
    while True:
        try:
            return env.ask([*talk[:begin], *keep_recent_exchanges(exchanges, room)], stop=stop, tools=tools)
        except PromptTooLong:
            room //= 2
            if room < MIN_HISTORY_CHARS:
                raise


def from_langchain_message(message: "BaseMessage") -> Message:
    """A message of LangChain's in our form."""
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
    """A reply of ours in LangChain's form."""
    from langchain_core.messages import AIMessage

    from mlagentbench.language.lenient_json import UnreadableObject, parse_object

    calls = []
    for call in reply.calls[:1]:  # its own would be done at the same time, in threads
        try:
            args = parse_object(call.arguments) if call.arguments.strip() else {}
        except UnreadableObject:
            args = {"arguments": call.arguments}
        calls.append({"name": call.name, "args": args, "id": call.id, "type": "tool_call"})
    return AIMessage(content=reply.text, tool_calls=calls)
