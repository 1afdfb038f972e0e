"""What a provider wants back with an earlier reply: its reasoning, and the ids and signatures of its parts.

It is kept as JSON beside the reply, and travels through an external program as an opaque token.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart

from mlagentbench.errors import PromptRejected
from mlagentbench.records import Message


class PartState(BaseModel):
    """One part of a reply. Texts and arguments are not repeated here; `call` is the id of a tool call."""

    model_config = ConfigDict(extra="forbid")

    thinking: str | None = None
    call: str | None = None
    id: str | None = None
    signature: str | None = None
    details: dict[str, Any] | None = None


class ResponseState(BaseModel):
    """The parts of a reply in their order, and the provider that understands their signatures."""

    model_config = ConfigDict(extra="forbid")

    provider: str
    parts: list[PartState]


def collect_state(response: ModelResponse) -> str:
    """The state of a response as JSON; empty if nothing would be lost without it."""
    parts: list[PartState] = []
    for part in response.parts:
        if isinstance(part, ThinkingPart):
            state = PartState(thinking=part.content, id=part.id, signature=part.signature)
        elif isinstance(part, ToolCallPart):
            state = PartState(call=part.tool_call_id, id=part.id)
        elif isinstance(part, TextPart):
            state = PartState(id=part.id)
        else:
            continue
        parts.append(state.model_copy(update={"details": part.provider_details}))
    if not any(part.thinking is not None or part.details for part in parts):
        return ""
    provider = response.provider_name or ""
    return ResponseState(provider=provider, parts=parts).model_dump_json(exclude_none=True)


def to_response(message: Message) -> ModelResponse:
    """An assistant's message as a response, with its reasoning where the provider put it.

    Raises:
        PromptRejected: The state is not one of ours.
    """
    calls = {call.id: ToolCallPart(call.name, call.arguments, call.id) for call in message.calls}
    text = [TextPart(message.text)] if message.text or not (calls or message.reasoning) else []
    if not message.provider_state:
        thoughts = [ThinkingPart(message.reasoning)] if message.reasoning else []
        return ModelResponse(parts=[*thoughts, *text, *calls.values()])
    try:
        state = ResponseState.model_validate_json(message.provider_state)
    except ValidationError as error:
        raise PromptRejected("The signature of a reasoning block was changed.") from error
    provider, parts = state.provider or None, list[ModelResponsePart]()
    for part in state.parts:
        common: dict[str, Any] = {"id": part.id, "provider_details": part.details, "provider_name": provider}
        if part.thinking is not None:
            parts.append(ThinkingPart(part.thinking, signature=part.signature, **common))
        elif part.call is not None:
            if call := calls.pop(part.call, None):
                parts.append(ToolCallPart(call.tool_name, call.args, call.tool_call_id, **common))
        elif text:
            parts.append(TextPart(message.text, **common))
            text = []
    return ModelResponse(parts=[*parts, *text, *calls.values()], provider_name=provider)
