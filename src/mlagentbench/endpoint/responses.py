"""OpenAI's responses."""

import time
from collections.abc import Iterator
from itertools import count

from mlagentbench.endpoint.base import (
    Dialect,
    Event,
    Json,
    MalformedRequest,
    choose_token_limit,
    content_text,
    list_field,
    merge_assistant_messages,
    new_id,
    parse_tool,
    split_for_stream,
)
from mlagentbench.records import Message, Prompt, Reply, ToolCall

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class Responses(Dialect):
    """POST /v1/responses."""

    path = "/v1/responses"

    def parse_request(self, body: Json) -> Prompt:
        """Instructions, then items: messages, calls of functions and their outputs."""
        talk = [Message(role="system", text=str(body["instructions"]))] if body.get("instructions") else []
        if isinstance(body.get("input"), str):
            talk.append(Message(role="user", text=body["input"]))
        else:
            talk += [message for item in list_field(body, "input") for message in _parse_item(item)]
        if not any(message.role != "system" for message in talk):
            raise MalformedRequest("input is empty")
        offered = [
            parse_tool(each, "parameters")
            for each in list_field(body, "tools")
            if each.get("type") == "function"
        ]
        most = choose_token_limit(body.get("max_output_tokens"))
        return Prompt(messages=merge_assistant_messages(talk), tools=tuple(offered), max_tokens=most)

    def response_body(self, reply: Reply) -> Json:
        """All its items, completed."""
        return _envelope(reply, new_id("resp_"), "completed", _output_items(reply))

    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """The response begun, its items one after another, and the whole of it."""
        number, name, done = count(), new_id("resp_"), _output_items(reply)

        def event(kind: str, **about: object) -> Event:
            return kind, {"type": kind, "sequence_number": next(number), **about}

        begun = _envelope(reply, name, "in_progress", [])
        yield event("response.created", response=begun)
        yield event("response.in_progress", response=begun)
        for place, item in enumerate(done):
            where = {"output_index": place, "item_id": item["id"]}
            empty: Json = {"content": []} if item["type"] == "message" else {"arguments": ""}
            opened = {**item, "status": "in_progress", **empty}
            yield event("response.output_item.added", output_index=place, item=opened)
            if item["type"] == "message":
                where["content_index"] = 0
                (part,) = item["content"]
                yield event("response.content_part.added", part={**part, "text": ""}, **where)
                for piece in split_for_stream(part["text"]):
                    yield event("response.output_text.delta", delta=piece, logprobs=[], **where)
                yield event("response.output_text.done", text=part["text"], logprobs=[], **where)
                yield event("response.content_part.done", part=part, **where)
            else:
                for piece in split_for_stream(item["arguments"]):
                    yield event("response.function_call_arguments.delta", delta=piece, **where)
                about = {"arguments": item["arguments"], "name": item["name"]}
                yield event("response.function_call_arguments.done", **about, **where)
            yield event("response.output_item.done", output_index=place, item=item)
        yield event("response.completed", response=_envelope(reply, name, "completed", done))

    def error_body(self, kind: str, message: str) -> Json:
        """As OpenAI words it."""
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": kind}}


def _parse_item(item: Json) -> Iterator[Message]:
    kind = item.get("type", "message")
    if kind == "message":
        role = ROLES.get(str(item.get("role")))
        if role is None:
            raise MalformedRequest(f"no role {item.get('role')!r}")
        yield Message(role=role, text=content_text(item.get("content")))  # type: ignore[arg-type]
    elif kind == "function_call":
        call = ToolCall(
            id=str(item.get("call_id", "")),
            name=str(item.get("name", "")),
            arguments=str(item.get("arguments", "")),
        )
        yield Message(role="assistant", calls=(call,))
    elif kind == "function_call_output":
        yield Message(
            role="tool", text=content_text(item.get("output")), answers=str(item.get("call_id", ""))
        )


def _output_items(reply: Reply) -> list[Json]:
    found: list[Json] = []
    if reply.text or not reply.calls:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        about = {"type": "message", "id": new_id("msg_"), "status": "completed", "role": "assistant"}
        found.append({**about, "content": [part]})
    for call in reply.calls:
        about = {"type": "function_call", "id": new_id("fc_"), "status": "completed", "call_id": call.id}
        found.append({**about, "name": call.name, "arguments": call.arguments})
    return found


def _envelope(reply: Reply, name: str, status: str, output: list[Json]) -> Json:
    asked, said = reply.input_tokens, reply.output_tokens
    usage = {
        "input_tokens": asked,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": said,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": asked + said,
    }
    return {
        "id": name,
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if status == "completed" else None,
    }
