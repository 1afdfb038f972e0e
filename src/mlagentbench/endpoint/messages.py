"""The Anthropic messages API."""

import json
from collections.abc import Iterator

from mlagentbench.endpoint.base import (
    Dialect,
    Event,
    Json,
    MalformedRequest,
    UnsupportedRequest,
    new_id,
    require_question,
    split_for_stream,
)
from mlagentbench.endpoint.fields import (
    build_sampling,
    content_text,
    effort_for_budget,
    flag_field,
    integer_field,
    list_field,
    object_field,
    parse_json_schema,
    parse_stop_sequences,
    parse_token_limit,
    parse_tool,
    refuse_hosted_tool,
    refuse_unknown_fields,
    required_name,
    text_field,
    unsupported_part,
)
from mlagentbench.endpoint.reasoning import parse_state_token, state_token
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.records import Message, Prompt, Reply, ReplyFormat, Tool, ToolCall, ToolChoice

SAMPLING = ("temperature", "top_p", "top_k")
CARRIED = {
    *SAMPLING,
    *("model", "messages", "system", "tools", "tool_choice", "stop_sequences", "max_tokens", "stream"),
    *("thinking", "output_config", "output_format"),
}
# context_management only makes a prompt shorter before the model sees it; here the model sees all of it.
NEUTRAL = {"metadata", "service_tier", "cache_control", "context_management", "inference_geo"}
CHOICE_MODES = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
STOP_REASONS = {"length": "max_tokens", "filter": "refusal"}
ERROR_TYPES = {"budget": "permission_error", "unknown_path": "not_found_error", "model": "api_error"}


class Messages(Dialect):
    """POST /v1/messages."""

    def parse_request(self, body: Json) -> Prompt:
        """Parse the system prompt, then turns with text, tool calls and tool results."""
        refuse_unknown_fields(body, CARRIED, NEUTRAL)
        messages = [Message(role="system", text=content_text(body["system"]))] if body.get("system") else []
        for turn in list_field(body, "messages"):
            messages += _parse_turn(turn)
        require_question(messages, "messages")
        return Prompt(
            messages=tuple(messages),
            stop=parse_stop_sequences(body.get("stop_sequences")),
            tools=tuple(_parse_tool(tool) for tool in list_field(body, "tools")),
            max_tokens=parse_token_limit(body, "max_tokens"),
            tool_choice=_parse_choice(object_field(body, "tool_choice")),
            reply_format=_parse_format(body),
            sampling=build_sampling(
                **{name: body.get(name) for name in SAMPLING}, effort=_parse_effort(body)
            ),
        )

    def response_body(self, reply: Reply, body: Json) -> Json:
        """One message with reasoning, text and tool calls."""
        return {
            **_envelope(reply),
            "content": _content_blocks(reply),
            "stop_reason": _stop_reason(reply),
            "usage": _usage(reply),
        }

    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """The start of the message, its blocks one by one, and its end."""
        started = {
            **_envelope(reply),
            "content": [],
            "stop_reason": None,
            "usage": {**_usage(reply), "output_tokens": 1},
        }
        yield "message_start", {"type": "message_start", "message": started}
        yield "ping", {"type": "ping"}
        for index, block in enumerate(_content_blocks(reply)):
            yield from _block_events(index, block)
        delta = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        usage = {"output_tokens": reply.output_tokens}
        yield "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
        yield "message_stop", {"type": "message_stop"}

    def error_body(self, kind: str, message: str) -> Json:
        """An error in Anthropic's format."""
        if kind == "context_length_exceeded":
            message = f"prompt is too long: {message}"
        error_type = ERROR_TYPES.get(kind, "invalid_request_error")
        return {"type": "error", "error": {"type": error_type, "message": message}}


def _parse_turn(turn: Json) -> Iterator[Message]:
    """Convert a turn; tool results become separate messages."""
    role, content = turn.get("role"), turn.get("content")
    if role not in ("user", "assistant", "system"):
        raise MalformedRequest(f"Unknown role: {role!r}.")
    parts = (
        list_field(turn, "content")
        if isinstance(content, list)
        else [{"type": "text", "text": content_text(content)}]
    )
    texts, calls, thoughts, state = [], [], [], ""
    for part in parts:
        kind = part.get("type")
        if kind == "tool_result":
            yield _parse_tool_result(part)
        elif kind == "tool_use":
            calls.append(_parse_tool_use(part))
        elif kind == "thinking":
            thoughts.append(text_field(part, "thinking"))
            state = state or parse_state_token(part.get("signature"))
        elif kind == "redacted_thinking":
            state = state or parse_state_token(part.get("data"))
        elif kind == "text":
            texts.append(text_field(part, "text"))
        else:
            raise unsupported_part(str(kind))
    if texts or calls or thoughts or state:
        reasoning = "\n".join(thought for thought in thoughts if thought)
        yield Message(
            role=role, text="\n".join(texts), calls=tuple(calls), reasoning=reasoning, provider_state=state
        )


def _parse_tool_use(part: Json) -> ToolCall:
    arguments = json.dumps(object_field(part, "input"), ensure_ascii=False)
    return ToolCall(id=text_field(part, "id"), name=text_field(part, "name"), arguments=arguments)


def _parse_tool_result(part: Json) -> Message:
    return Message(
        role="tool",
        text=content_text(part.get("content")),
        answers=text_field(part, "tool_use_id"),
        failed=bool(part.get("is_error")),
    )


def _parse_tool(tool: Json) -> Tool:
    if tool.get("type") not in (None, "custom"):
        raise refuse_hosted_tool(str(tool["type"]))
    return parse_tool(tool, "input_schema")


def _parse_choice(choice: Json) -> ToolChoice:
    mode = CHOICE_MODES.get(str(choice.get("type", "auto")))
    if mode is None:
        raise MalformedRequest(f"tool_choice cannot be {choice['type']!r}.")
    disabled = flag_field(choice, "disable_parallel_tool_use")
    return ToolChoice(
        mode=mode,  # type: ignore[arg-type]
        names=(required_name(choice),) if choice.get("type") == "tool" else (),
        parallel=None if disabled is None else not disabled,
    )


def _parse_format(body: Json) -> ReplyFormat | None:
    definition = object_field(object_field(body, "output_config"), "format") or object_field(
        body, "output_format"
    )
    if definition and definition.get("type") != "json_schema":
        raise UnsupportedRequest(f"The output format {definition.get('type')!r} is unknown.")
    return parse_json_schema(definition) if definition else None


def _parse_effort(body: Json) -> str:
    """How much the model should think: from a level, or from a budget of tokens."""
    thinking = object_field(body, "thinking")
    if thinking.get("type") == "disabled":
        return "none"
    if effort := text_field(object_field(body, "output_config"), "effort"):
        return effort
    if thinking.get("type") == "enabled":
        return effort_for_budget(integer_field(thinking, "budget_tokens") or 0)
    return "default" if thinking else ""


def _content_blocks(reply: Reply) -> list[Json]:
    blocks: list[Json] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": state_token(reply)})
    elif reply.provider_state:
        blocks.append({"type": "redacted_thinking", "data": state_token(reply)})
    if reply.text or not reply.calls:
        blocks.append({"type": "text", "text": reply.text})
    for call in reply.calls:
        try:
            arguments = parse_object(call.arguments) if call.arguments.strip() else {}
        except UnreadableObject:
            arguments = {"arguments": call.arguments}
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return blocks


def _block_events(index: int, block: Json) -> Iterator[Event]:
    started, deltas = _split_block(block)
    yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": started}
    for delta in deltas:
        yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": index}


def _split_block(block: Json) -> tuple[Json, list[Json]]:
    """A block without its content, and the content as deltas."""
    if block["type"] == "text":
        deltas = [{"type": "text_delta", "text": chunk} for chunk in split_for_stream(block["text"])]
        return {**block, "text": ""}, deltas
    if block["type"] == "thinking":
        chunks = split_for_stream(block["thinking"])
        deltas = [{"type": "thinking_delta", "thinking": chunk} for chunk in chunks]
        signature = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*deltas, signature]
    if block["type"] == "tool_use":
        chunks = split_for_stream(json.dumps(block["input"]))
        deltas = [{"type": "input_json_delta", "partial_json": chunk} for chunk in chunks]
        return {**block, "input": {}}, deltas
    return block, []


def _stop_reason(reply: Reply) -> str:
    return STOP_REASONS.get(reply.finish) or ("tool_use" if reply.calls else "end_turn")


def _envelope(reply: Reply) -> Json:
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "stop_sequence": None,
    }


def _usage(reply: Reply) -> Json:
    return {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
