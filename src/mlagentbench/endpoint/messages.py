"""Anthropic's messages."""

import json
from collections.abc import Iterator

from mlagentbench.endpoint.base import (
    Dialect,
    Event,
    Json,
    Malformed,
    fresh,
    items,
    limit,
    pieces,
    text_of,
    texts,
    tool,
)
from mlagentbench.language.objects import Unreadable, read_object
from mlagentbench.records import Message, Prompt, Reply, ToolCall


class Messages(Dialect):
    """POST /v1/messages."""

    path = "/v1/messages"

    def read(self, body: Json) -> Prompt:
        """The system's words, then turns whose parts may be text, calls of tools, and their results."""
        talk = [Message(role="system", text=text_of(body["system"]))] if body.get("system") else []
        for said in items(body, "messages"):
            if said.get("role") not in ("user", "assistant"):
                raise Malformed(f"no role {said.get('role')!r}")
            talk += _turn(said)
        if not any(message.role != "system" for message in talk):
            raise Malformed("messages is empty")
        offered = tuple(tool(each, "input_schema") for each in items(body, "tools"))
        most = limit(body.get("max_tokens"))
        return Prompt(messages=tuple(talk), stop=texts(body.get("stop_sequences")), tools=offered, max_tokens=most)

    def write(self, reply: Reply) -> Json:
        """One message of text and calls."""
        return {**_head(reply), "content": _content(reply), "stop_reason": _ending(reply), "usage": _usage(reply)}

    def events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """The message begun, its blocks one after another, and its end."""
        begun = {**_head(reply), "content": [], "stop_reason": None, "usage": {**_usage(reply), "output_tokens": 1}}
        yield "message_start", {"type": "message_start", "message": begun}
        yield "ping", {"type": "ping"}
        for number, block in enumerate(_content(reply)):
            yield from _block(number, block)
        ending = {"stop_reason": _ending(reply), "stop_sequence": None}
        usage = {"output_tokens": reply.output_tokens}
        yield "message_delta", {"type": "message_delta", "delta": ending, "usage": usage}
        yield "message_stop", {"type": "message_stop"}

    def error(self, kind: str, message: str) -> Json:
        """As Anthropic words it."""
        said = f"prompt is too long: {message}" if kind == "context_length_exceeded" else message
        kinds = {"budget": "permission_error", "unknown_path": "not_found_error", "model": "api_error"}
        return {"type": "error", "error": {"type": kinds.get(kind, "invalid_request_error"), "message": said}}


def _turn(said: Json) -> Iterator[Message]:
    """A turn in our form: results of tools are messages of their own."""
    content = said.get("content")
    parts = items(said, "content") if isinstance(content, list) else [{"type": "text", "text": text_of(content)}]
    words, calls = [], []
    for part in parts:
        if part.get("type") == "tool_result":
            yield Message(role="tool", text=text_of(part.get("content")), answers=str(part.get("tool_use_id", "")))
        elif part.get("type") == "tool_use":
            arguments = json.dumps(part.get("input") or {})
            calls.append(ToolCall(id=str(part.get("id", "")), name=str(part.get("name", "")), arguments=arguments))
        elif part.get("type") not in ("thinking", "redacted_thinking"):
            words.append(text_of([part]))
    if words or calls:
        yield Message(role=said["role"], text="\n".join(words), calls=tuple(calls))


def _content(reply: Reply) -> list[Json]:
    found: list[Json] = [{"type": "text", "text": reply.text}] if reply.text or not reply.calls else []
    for call in reply.calls:
        try:
            given = read_object(call.arguments) if call.arguments.strip() else {}
        except Unreadable:
            given = {"arguments": call.arguments}
        found.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
    return found


def _block(number: int, block: Json) -> Iterator[Event]:
    is_text = block["type"] == "text"
    empty = {**block, "text": ""} if is_text else {**block, "input": {}}
    yield "content_block_start", {"type": "content_block_start", "index": number, "content_block": empty}
    for piece in pieces(block["text"] if is_text else json.dumps(block["input"])):
        delta = (
            {"type": "text_delta", "text": piece} if is_text else {"type": "input_json_delta", "partial_json": piece}
        )
        yield "content_block_delta", {"type": "content_block_delta", "index": number, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": number}


def _ending(reply: Reply) -> str:
    return "tool_use" if reply.calls else "end_turn"


def _head(reply: Reply) -> Json:
    about = {"id": fresh("msg_"), "type": "message", "role": "assistant", "model": reply.model}
    return {**about, "stop_sequence": None}


def _usage(reply: Reply) -> Json:
    return {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
