"""Converts steps to Inspect messages: a tool call and its result."""

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool
from inspect_ai.tool import ToolCall, ToolCallError

from mlagentbench.agents.tools import tool_name
from mlagentbench.records import Step


def step_to_messages(step: Step, model: str = "") -> list[ChatMessage]:
    """The agent's message with the tool call, and the tool's message with the observation."""
    call_id, function = f"step-{step.number}", tool_name(step.call.action)
    call = ToolCall(id=call_id, function=function, arguments=step.call.args)
    error = ToolCallError("unknown", step.observation) if step.failed else None
    return [
        ChatMessageAssistant(
            content=step.call.thought, tool_calls=[call], model=model or None, source="generate"
        ),
        ChatMessageTool(content=step.observation, tool_call_id=call_id, function=function, error=error),
    ]
