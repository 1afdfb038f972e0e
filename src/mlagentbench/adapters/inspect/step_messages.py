"""Converts steps to Inspect messages: tool calls and their results."""

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool
from inspect_ai.tool import ToolCall, ToolCallError

from mlagentbench.actions.command import RESULT_HEADER
from mlagentbench.agents.tools import tool_name
from mlagentbench.formatting import parse_tool_arguments
from mlagentbench.records import Step


def step_to_messages(step: Step, model: str = "") -> list[ChatMessage]:
    """The agent's message with its tool calls, and a message with the result of each."""
    calls = step_to_tool_calls(step)
    error = ToolCallError("unknown", step.observation) if step.failed else None
    results = split_results(step)
    return [
        ChatMessageAssistant(
            content=step.call.thought, tool_calls=calls, model=model or None, source="generate"
        ),
        *(
            ChatMessageTool(content=result, tool_call_id=call.id, function=call.function, error=error)
            for call, result in zip(calls, results, strict=True)
        ),
    ]


def step_to_tool_calls(step: Step) -> list[ToolCall]:
    """The action of a step as a tool call; of an external program, the calls of its own tools."""
    call_id = f"step-{step.number}"
    return [
        ToolCall(id=f"{call_id}-{number}", function=call.name, arguments=parse_tool_arguments(call))
        for number, call in enumerate(step.call.tool_calls, 1)
    ] or [ToolCall(id=call_id, function=tool_name(step.call.action), arguments=step.call.args)]


def split_results(step: Step) -> list[str]:
    """The part of the observation that belongs to each call; what the program printed goes to the first."""
    results, rest = [], step.observation
    for call in step.call.tool_calls[1:]:
        header = RESULT_HEADER.format(tool=call.name)
        start = rest.find(f"\n{header}\n", 1)
        start = start + 1 if start >= 0 else len(rest)
        results.append(rest[:start].rstrip("\n"))
        rest = rest[start:]
    return [*results, rest]
