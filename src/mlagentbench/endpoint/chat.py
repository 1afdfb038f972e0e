"""OpenAI's chat completions."""

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
        """Messages with their tool calls, tools, stop sequences."""
        offered = [
            parse_tool(object_field(each, "function"), "parameters") for each in list_field(body, "tools")
        ]
        talk = tuple(_parse_message(each) for each in list_field(body, "messages"))
        if not talk:
            raise MalformedRequest("messages is empty")
        object_field(
            body, "stream_options"
        )  # looked at only when the answer is there, which would be too late
        most = choose_token_limit(body.get("max_completion_tokens"), body.get("max_tokens"))
        return Prompt(
            messages=talk, stop=parse_stop_sequences(body.get("stop")), tools=tuple(offered), max_tokens=most
        )

    def response_body(self, reply: Reply) -> Json:
        """One choice."""
        message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
        if reply.calls:
            message["tool_calls"] = [_format_call(call) for call in reply.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(reply)}
        return {**_envelope(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """Chunks: the role, the text, the calls, the ending, and the usage if it is asked for."""
        head = _envelope(reply, "chat.completion.chunk")

        def chunk(delta: Json, ending: str | None = None) -> Event:
            return "", {
                **head,
                "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": ending}],
            }

        yield chunk({"role": "assistant", "content": ""})
        yield from (chunk({"content": piece}) for piece in split_for_stream(reply.text))
        for number, call in enumerate(reply.calls):
            yield chunk({"tool_calls": [{"index": number, **_format_call(call)}]})
        yield chunk({}, _finish_reason(reply))
        if object_field(body, "stream_options").get("include_usage"):
            yield "", {**head, "choices": [], "usage": _usage(reply)}

    def error_body(self, kind: str, message: str) -> Json:
        """As OpenAI words it."""
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": kind}}

    def encode_event(self, event: Event) -> str:
        """Its events have no names."""
        return f"data: {json.dumps(event[1])}\n\n"


def _parse_message(said: Json) -> Message:
    role = ROLES.get(str(said.get("role")))
    if role is None:
        raise MalformedRequest(f"no role {said.get('role')!r}")
    calls = []
    for call in list_field(said, "tool_calls"):
        function = object_field(call, "function")
        name, arguments = str(function.get("name", "")), str(function.get("arguments") or "")
        calls.append(ToolCall(id=str(call.get("id", "")), name=name, arguments=arguments))
    text = content_text(said.get("content"))
    return Message(role=role, text=text, calls=tuple(calls), answers=str(said.get("tool_call_id") or ""))  # type: ignore[arg-type]


def _format_call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _finish_reason(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _envelope(reply: Reply, kind: str) -> Json:
    return {"id": new_id("chatcmpl-"), "object": kind, "created": int(time.time()), "model": reply.model}


def _usage(reply: Reply) -> Json:
    asked, said = reply.input_tokens, reply.output_tokens
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}
