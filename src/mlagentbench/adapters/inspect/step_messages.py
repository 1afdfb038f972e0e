"""Steps as messages: what an agent called for, and what came of it."""

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool
from inspect_ai.tool import ToolCall, ToolCallError

from mlagentbench.agents.tools import tool_name
from mlagentbench.records import Step


def step_to_messages(step: Step, model: str = "") -> list[ChatMessage]:
    """The agent calls a tool, and the tool answers."""
    number, function = f"step-{step.number}", tool_name(step.call.action)
    call = ToolCall(id=number, function=function, arguments=step.call.args)
    error = ToolCallError("unknown", step.observation) if step.failed else None
    return [
        ChatMessageAssistant(
            content=step.call.thought, tool_calls=[call], model=model or None, source="generate"
        ),
        ChatMessageTool(content=step.observation, tool_call_id=number, function=function, error=error),
    ]
