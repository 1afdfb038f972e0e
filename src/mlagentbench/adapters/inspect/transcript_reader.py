"""Records the model calls that an Inspect solver makes between two steps."""

import json
from collections.abc import Sequence

from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool

from mlagentbench.adapters.inspect.models import output_to_reply
from mlagentbench.environment.environment import Environment
from mlagentbench.environment.model_calls import CallContext
from mlagentbench.records import Message, Prompt, Role, Tool, ToolCall

OTHER_ROLES: tuple[Role, ...] = ("fast", "edit")


class TranscriptReader:
    """Reads a sample's transcript incrementally."""

    def __init__(self) -> None:
        self._events_read = 0

    def read_new_model_events(self) -> list[ModelEvent]:
        """Model events with output since the last call."""
        history = transcript().history
        events = history.events_from(self._events_read)
        self._events_read = history.event_count
        return [event for event in events if isinstance(event, ModelEvent) and not event.output.empty]


def record_model_calls(events: Sequence[ModelEvent], env: Environment) -> None:
    """Add the events to the run's record, and count their cost."""
    for event in events:
        role: Role = next((role for role in OTHER_ROLES if role == event.role), "main")
        reply, context = output_to_reply(event.output), CallContext(len(env.steps) + 1)
        env.model_calls.record_external_call(
            _to_prompt(event), context, role, reply, event.working_time or 0.0
        )


def _to_prompt(event: ModelEvent) -> Prompt:
    tools = tuple(
        Tool(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters.model_dump(exclude_none=True),
        )
        for tool in event.tools
    )
    return Prompt(
        messages=tuple(_to_message(message) for message in event.input),
        stop=tuple(event.config.stop_seqs or ()),
        tools=tools,
        max_tokens=event.config.max_tokens or 0,
    )


def _to_message(message: ChatMessage) -> Message:
    calls: tuple[ToolCall, ...] = ()
    if isinstance(message, ChatMessageAssistant):
        calls = tuple(
            ToolCall(id=call.id, name=call.function, arguments=json.dumps(call.arguments))
            for call in message.tool_calls or ()
        )
    answers = message.tool_call_id or "" if isinstance(message, ChatMessageTool) else ""
    text = message.error.message if isinstance(message, ChatMessageTool) and message.error else message.text
    return Message(role=message.role, text=text, calls=calls, answers=answers)
