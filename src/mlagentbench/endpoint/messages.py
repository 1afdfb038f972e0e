"""Anthropic's messages."""

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
        """The system's words, then turns whose parts may be text, calls of tools, and their results."""
        talk = [Message(role="system", text=content_text(body["system"]))] if body.get("system") else []
        for said in list_field(body, "messages"):
            if said.get("role") not in ("user", "assistant"):
                raise MalformedRequest(f"no role {said.get('role')!r}")
            talk += _parse_turn(said)
        if not any(message.role != "system" for message in talk):
            raise MalformedRequest("messages is empty")
        offered = tuple(parse_tool(each, "input_schema") for each in list_field(body, "tools"))
        most = choose_token_limit(body.get("max_tokens"))
        return Prompt(
            messages=tuple(talk),
            stop=parse_stop_sequences(body.get("stop_sequences")),
            tools=offered,
            max_tokens=most,
        )

    def response_body(self, reply: Reply) -> Json:
        """One message of text and calls."""
        return {
            **_envelope(reply),
            "content": _content_blocks(reply),
            "stop_reason": _stop_reason(reply),
            "usage": _usage(reply),
        }

    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """The message begun, its blocks one after another, and its end."""
        begun = {
            **_envelope(reply),
            "content": [],
            "stop_reason": None,
            "usage": {**_usage(reply), "output_tokens": 1},
        }
        yield "message_start", {"type": "message_start", "message": begun}
        yield "ping", {"type": "ping"}
        for number, block in enumerate(_content_blocks(reply)):
            yield from _block_events(number, block)
        ending = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        usage = {"output_tokens": reply.output_tokens}
        yield "message_delta", {"type": "message_delta", "delta": ending, "usage": usage}
        yield "message_stop", {"type": "message_stop"}

    def error_body(self, kind: str, message: str) -> Json:
        """As Anthropic words it."""
        said = f"prompt is too long: {message}" if kind == "context_length_exceeded" else message
        kinds = {"budget": "permission_error", "unknown_path": "not_found_error", "model": "api_error"}
        return {"type": "error", "error": {"type": kinds.get(kind, "invalid_request_error"), "message": said}}


def _parse_turn(said: Json) -> Iterator[Message]:
    """A turn in our form: results of tools are messages of their own."""
    content = said.get("content")
    parts = (
        list_field(said, "content")
        if isinstance(content, list)
        else [{"type": "text", "text": content_text(content)}]
    )
    words, calls = [], []
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
            words.append(content_text([part]))
    if words or calls:
        yield Message(role=said["role"], text="\n".join(words), calls=tuple(calls))


def _content_blocks(reply: Reply) -> list[Json]:
    found: list[Json] = [{"type": "text", "text": reply.text}] if reply.text or not reply.calls else []
    for call in reply.calls:
        try:
            given = parse_object(call.arguments) if call.arguments.strip() else {}
        except UnreadableObject:
            given = {"arguments": call.arguments}
        found.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
    return found


def _block_events(number: int, block: Json) -> Iterator[Event]:
    is_text = block["type"] == "text"
    empty = {**block, "text": ""} if is_text else {**block, "input": {}}
    yield "content_block_start", {"type": "content_block_start", "index": number, "content_block": empty}
    for piece in split_for_stream(block["text"] if is_text else json.dumps(block["input"])):
        delta = (
            {"type": "text_delta", "text": piece}
            if is_text
            else {"type": "input_json_delta", "partial_json": piece}
        )
        yield "content_block_delta", {"type": "content_block_delta", "index": number, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": number}


def _stop_reason(reply: Reply) -> str:
    return "tool_use" if reply.calls else "end_turn"


def _envelope(reply: Reply) -> Json:
    about = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": reply.model}
    return {**about, "stop_sequence": None}


def _usage(reply: Reply) -> Json:
    return {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
