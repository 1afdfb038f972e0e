"""The OpenAI chat completions API."""

import json
import time
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
    object_field,
    parse_stop_sequences,
    parse_tool,
    split_for_stream,
)
from mlagentbench.records import Message, Prompt, Reply, ToolCall

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


class Chat(Dialect):
    """POST /v1/chat/completions."""

    path = "/v1/chat/completions"
    stream_end = "data: [DONE]\n\n"

    def parse_request(self, body: Json) -> Prompt:
        """Parse messages with their tool calls, tools and stop sequences."""
        tools = [
            parse_tool(object_field(tool, "function"), "parameters") for tool in list_field(body, "tools")
        ]
        messages = tuple(_parse_message(message) for message in list_field(body, "messages"))
        if not messages:
            raise MalformedRequest("messages is empty.")
        # Used only when the reply is written, when it would be too late to reject the request.
        object_field(body, "stream_options")
        return Prompt(
            messages=messages,
            stop=parse_stop_sequences(body.get("stop")),
            tools=tuple(tools),
            max_tokens=choose_token_limit(body.get("max_completion_tokens"), body.get("max_tokens")),
        )

    def response_body(self, reply: Reply) -> Json:
        """A completion with one choice."""
        message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
        if reply.calls:
            message["tool_calls"] = [_format_call(call) for call in reply.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(reply)}
        return {**_envelope(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """Chunks with the role, the text, the calls, the finish reason, and the usage if requested."""
        envelope = _envelope(reply, "chat.completion.chunk")

        def build_chunk(delta: Json, finish_reason: str | None = None) -> Event:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
            return "", {**envelope, "choices": [choice]}

        yield build_chunk({"role": "assistant", "content": ""})
        yield from (build_chunk({"content": text}) for text in split_for_stream(reply.text))
        for index, call in enumerate(reply.calls):
            yield build_chunk({"tool_calls": [{"index": index, **_format_call(call)}]})
        yield build_chunk({}, _finish_reason(reply))
        if object_field(body, "stream_options").get("include_usage"):
            yield "", {**envelope, "choices": [], "usage": _usage(reply)}

    def error_body(self, kind: str, message: str) -> Json:
        """An error in OpenAI's format."""
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": kind}}

    def encode_event(self, event: Event) -> str:
        """Encode one event; in this API events have no names."""
        return f"data: {json.dumps(event[1])}\n\n"


def _parse_message(message: Json) -> Message:
    role = ROLES.get(str(message.get("role")))
    if role is None:
        raise MalformedRequest(f"Unknown role: {message.get('role')!r}.")
    calls = []
    for call in list_field(message, "tool_calls"):
        function = object_field(call, "function")
        name, arguments = str(function.get("name", "")), str(function.get("arguments") or "")
        calls.append(ToolCall(id=str(call.get("id", "")), name=name, arguments=arguments))
    text = content_text(message.get("content"))
    answers = str(message.get("tool_call_id") or "")
    return Message(role=role, text=text, calls=tuple(calls), answers=answers)  # type: ignore[arg-type]


def _format_call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _finish_reason(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _envelope(reply: Reply, kind: str) -> Json:
    return {"id": new_id("chatcmpl-"), "object": kind, "created": int(time.time()), "model": reply.model}


def _usage(reply: Reply) -> Json:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
