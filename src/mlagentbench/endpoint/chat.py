"""OpenAI's chat completions."""

import json
import time
from collections.abc import Iterator

from mlagentbench.endpoint.base import (
    Dialect,
    Event,
    Json,
    Malformed,
    fresh,
    items,
    limit,
    part,
    pieces,
    text_of,
    texts,
    tool,
)
from mlagentbench.records import Message, Prompt, Reply, ToolCall

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


class Chat(Dialect):
    """POST /v1/chat/completions."""

    path = "/v1/chat/completions"
    end = "data: [DONE]\n\n"

    def read(self, body: Json) -> Prompt:
        """Messages with their tool calls, tools, stop sequences."""
        offered = [tool(part(each, "function"), "parameters") for each in items(body, "tools")]
        talk = tuple(_message(each) for each in items(body, "messages"))
        if not talk:
            raise Malformed("messages is empty")
        part(body, "stream_options")  # looked at only when the answer is there, which would be too late
        most = limit(body.get("max_completion_tokens"), body.get("max_tokens"))
        return Prompt(messages=talk, stop=texts(body.get("stop")), tools=tuple(offered), max_tokens=most)

    def write(self, reply: Reply) -> Json:
        """One choice."""
        message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
        if reply.calls:
            message["tool_calls"] = [_call(call) for call in reply.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _ending(reply)}
        return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """Chunks: the role, the text, the calls, the ending, and the usage if it is asked for."""
        head = _head(reply, "chat.completion.chunk")

        def chunk(delta: Json, ending: str | None = None) -> Event:
            return "", {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": ending}]}

        yield chunk({"role": "assistant", "content": ""})
        yield from (chunk({"content": piece}) for piece in pieces(reply.text))
        for number, call in enumerate(reply.calls):
            yield chunk({"tool_calls": [{"index": number, **_call(call)}]})
        yield chunk({}, _ending(reply))
        if part(body, "stream_options").get("include_usage"):
            yield "", {**head, "choices": [], "usage": _usage(reply)}

    def error(self, kind: str, message: str) -> Json:
        """As OpenAI words it."""
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": kind}}

    def frame(self, event: Event) -> str:
        """Its events have no names."""
        return f"data: {json.dumps(event[1])}\n\n"


def _message(said: Json) -> Message:
    role = ROLES.get(str(said.get("role")))
    if role is None:
        raise Malformed(f"no role {said.get('role')!r}")
    calls = []
    for call in items(said, "tool_calls"):
        function = part(call, "function")
        name, arguments = str(function.get("name", "")), str(function.get("arguments") or "")
        calls.append(ToolCall(id=str(call.get("id", "")), name=name, arguments=arguments))
    text = text_of(said.get("content"))
    return Message(role=role, text=text, calls=tuple(calls), answers=str(said.get("tool_call_id") or ""))  # type: ignore[arg-type]


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _ending(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _head(reply: Reply, kind: str) -> Json:
    return {"id": fresh("chatcmpl-"), "object": kind, "created": int(time.time()), "model": reply.model}


def _usage(reply: Reply) -> Json:
    asked, said = reply.input_tokens, reply.output_tokens
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}
