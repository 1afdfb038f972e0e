"""The OpenAI responses API."""

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
        """Parse the instructions, then items: messages, function calls and their outputs."""
        instructions = body.get("instructions")
        messages = [Message(role="system", text=str(instructions))] if instructions else []
        if isinstance(body.get("input"), str):
            messages.append(Message(role="user", text=body["input"]))
        else:
            messages += [message for item in list_field(body, "input") for message in _parse_item(item)]
        if not any(message.role != "system" for message in messages):
            raise MalformedRequest("input is empty.")
        tools = [
            parse_tool(tool, "parameters")
            for tool in list_field(body, "tools")
            if tool.get("type") == "function"
        ]
        return Prompt(
            messages=merge_assistant_messages(messages),
            tools=tuple(tools),
            max_tokens=choose_token_limit(body.get("max_output_tokens")),
        )

    def response_body(self, reply: Reply) -> Json:
        """A completed response with all its items."""
        return _envelope(reply, new_id("resp_"), "completed", _output_items(reply))

    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """The start of the response, its items one by one, and the completed response."""
        sequence, response_id, items = count(), new_id("resp_"), _output_items(reply)

        def event(event_type: str, **data: object) -> Event:
            return event_type, {"type": event_type, "sequence_number": next(sequence), **data}

        started = _envelope(reply, response_id, "in_progress", [])
        yield event("response.created", response=started)
        yield event("response.in_progress", response=started)
        for index, item in enumerate(items):
            location = {"output_index": index, "item_id": item["id"]}
            empty: Json = {"content": []} if item["type"] == "message" else {"arguments": ""}
            started_item = {**item, "status": "in_progress", **empty}
            yield event("response.output_item.added", output_index=index, item=started_item)
            if item["type"] == "message":
                location["content_index"] = 0
                (part,) = item["content"]
                yield event("response.content_part.added", part={**part, "text": ""}, **location)
                for chunk in split_for_stream(part["text"]):
                    yield event("response.output_text.delta", delta=chunk, logprobs=[], **location)
                yield event("response.output_text.done", text=part["text"], logprobs=[], **location)
                yield event("response.content_part.done", part=part, **location)
            else:
                for chunk in split_for_stream(item["arguments"]):
                    yield event("response.function_call_arguments.delta", delta=chunk, **location)
                call = {"arguments": item["arguments"], "name": item["name"]}
                yield event("response.function_call_arguments.done", **call, **location)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=_envelope(reply, response_id, "completed", items))

    def error_body(self, kind: str, message: str) -> Json:
        """An error in OpenAI's format."""
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": kind}}


def _parse_item(item: Json) -> Iterator[Message]:
    item_type = item.get("type", "message")
    if item_type == "message":
        role = ROLES.get(str(item.get("role")))
        if role is None:
            raise MalformedRequest(f"Unknown role: {item.get('role')!r}.")
        yield Message(role=role, text=content_text(item.get("content")))  # type: ignore[arg-type]
    elif item_type == "function_call":
        call = ToolCall(
            id=str(item.get("call_id", "")),
            name=str(item.get("name", "")),
            arguments=str(item.get("arguments", "")),
        )
        yield Message(role="assistant", calls=(call,))
    elif item_type == "function_call_output":
        yield Message(
            role="tool", text=content_text(item.get("output")), answers=str(item.get("call_id", ""))
        )


def _output_items(reply: Reply) -> list[Json]:
    items: list[Json] = []
    if reply.text or not reply.calls:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        item = {"type": "message", "id": new_id("msg_"), "status": "completed", "role": "assistant"}
        items.append({**item, "content": [part]})
    for call in reply.calls:
        item = {"type": "function_call", "id": new_id("fc_"), "status": "completed", "call_id": call.id}
        items.append({**item, "name": call.name, "arguments": call.arguments})
    return items


def _envelope(reply: Reply, response_id: str, status: str, output: list[Json]) -> Json:
    usage = {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
    return {
        "id": response_id,
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
