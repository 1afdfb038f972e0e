"""The Anthropic messages API."""

import json
from collections.abc import Iterator

from mlagentbench.endpoint.base import (
    Dialect,
    Event,
    Json,
    MalformedRequest,
    choose_token_limit,
    content_text,
    list_field,
    new_id,
    parse_stop_sequences,
    parse_tool,
    split_for_stream,
)
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.records import Message, Prompt, Reply, ToolCall


class Messages(Dialect):
    """POST /v1/messages."""

    path = "/v1/messages"

    def parse_request(self, body: Json) -> Prompt:
        """Parse the system prompt, then turns with text, tool calls and tool results."""
        messages = [Message(role="system", text=content_text(body["system"]))] if body.get("system") else []
        for turn in list_field(body, "messages"):
            if turn.get("role") not in ("user", "assistant"):
                raise MalformedRequest(f"Unknown role: {turn.get('role')!r}.")
            messages += _parse_turn(turn)
        if not any(message.role != "system" for message in messages):
            raise MalformedRequest("messages is empty.")
        return Prompt(
            messages=tuple(messages),
            stop=parse_stop_sequences(body.get("stop_sequences")),
            tools=tuple(parse_tool(tool, "input_schema") for tool in list_field(body, "tools")),
            max_tokens=choose_token_limit(body.get("max_tokens")),
        )

    def response_body(self, reply: Reply) -> Json:
        """One message with text and tool calls."""
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
        types = {"budget": "permission_error", "unknown_path": "not_found_error", "model": "api_error"}
        error_type = types.get(kind, "invalid_request_error")
        return {"type": "error", "error": {"type": error_type, "message": message}}


def _parse_turn(turn: Json) -> Iterator[Message]:
    """Convert a turn; tool results become separate messages."""
    content = turn.get("content")
    parts = (
        list_field(turn, "content")
        if isinstance(content, list)
        else [{"type": "text", "text": content_text(content)}]
    )
    texts, calls = [], []
    for part in parts:
        if part.get("type") == "tool_result":
            yield Message(
                role="tool", text=content_text(part.get("content")), answers=str(part.get("tool_use_id", ""))
            )
        elif part.get("type") == "tool_use":
            arguments = json.dumps(part.get("input") or {})
            calls.append(
                ToolCall(id=str(part.get("id", "")), name=str(part.get("name", "")), arguments=arguments)
            )
        elif part.get("type") not in ("thinking", "redacted_thinking"):
            texts.append(content_text([part]))
    if texts or calls:
        yield Message(role=turn["role"], text="\n".join(texts), calls=tuple(calls))


def _content_blocks(reply: Reply) -> list[Json]:
    blocks: list[Json] = [{"type": "text", "text": reply.text}] if reply.text or not reply.calls else []
    for call in reply.calls:
        try:
            arguments = parse_object(call.arguments) if call.arguments.strip() else {}
        except UnreadableObject:
            arguments = {"arguments": call.arguments}
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return blocks


def _block_events(index: int, block: Json) -> Iterator[Event]:
    is_text = block["type"] == "text"
    empty = {**block, "text": ""} if is_text else {**block, "input": {}}
    yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": empty}
    for chunk in split_for_stream(block["text"] if is_text else json.dumps(block["input"])):
        delta = (
            {"type": "text_delta", "text": chunk}
            if is_text
            else {"type": "input_json_delta", "partial_json": chunk}
        )
        yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": index}


def _stop_reason(reply: Reply) -> str:
    return "tool_use" if reply.calls else "end_turn"


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
