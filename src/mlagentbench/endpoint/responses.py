"""The OpenAI responses API."""

import time
from collections.abc import Iterator
from itertools import count

from mlagentbench.endpoint.base import (
    Dialect,
    Event,
    Json,
    MalformedRequest,
    UnsupportedRequest,
    merge_assistant_messages,
    new_id,
    require_question,
)
from mlagentbench.endpoint.chat import parse_choice_mode, parse_format
from mlagentbench.endpoint.fields import (
    build_sampling,
    content_text,
    flag_field,
    list_field,
    object_field,
    parse_token_limit,
    refuse_unknown_fields,
    text_field,
)
from mlagentbench.endpoint.reasoning import parse_state_token
from mlagentbench.endpoint.response_items import item_events, output_items
from mlagentbench.endpoint.response_tools import (
    CALL_ITEMS,
    FIXED_TOOLS,
    OUTPUT_ITEMS,
    function_name,
    offered_tools,
    parse_call_item,
    parse_output_item,
)
from mlagentbench.records import Message, Prompt, Reply, ToolChoice

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
CARRIED = {
    *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens"),
    *("temperature", "top_p", "text", "reasoning", "stream"),
}
NEUTRAL = {
    *("user", "metadata", "client_metadata", "store", "service_tier", "prompt_cache_key", "stream_options"),
    *("prompt_cache_retention", "safety_identifier", "truncation", "include"),
}
# Things that a response may include; everything that it has is in it anyway.
KNOWN_INCLUDES = {"reasoning.encrypted_content"}
INCOMPLETE_REASONS = {"length": "max_output_tokens", "filter": "content_filter"}


class Responses(Dialect):
    """POST /v1/responses."""

    def parse_request(self, body: Json) -> Prompt:
        """Parse the instructions, then items: messages, calls, their outputs, reasoning and tools."""
        refuse_unknown_fields(body, CARRIED, NEUTRAL)
        _check_options(body)
        instructions = text_field(body, "instructions")
        messages = [Message(role="system", text=instructions)] if instructions else []
        if isinstance(body.get("input"), str):
            messages.append(Message(role="user", text=body["input"]))
        else:
            messages += [message for item in list_field(body, "input") for message in _parse_item(item)]
        require_question(messages, "input")
        text, reasoning = object_field(body, "text"), object_field(body, "reasoning")
        return Prompt(
            messages=merge_assistant_messages(messages),
            tools=tuple(tool.function for tool in offered_tools(body).values()),
            max_tokens=parse_token_limit(body, "max_output_tokens"),
            tool_choice=_parse_choice(body),
            reply_format=parse_format(object_field(text, "format")),
            sampling=build_sampling(
                temperature=body.get("temperature"),
                top_p=body.get("top_p"),
                effort=text_field(reasoning, "effort"),
                verbosity=text_field(text, "verbosity"),
            ),
        )

    def response_body(self, reply: Reply, body: Json) -> Json:
        """A response with all its items."""
        return _envelope(reply, new_id("resp_"), _status(reply), output_items(reply, offered_tools(body)))

    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """The start of the response, its items one by one, and the whole response."""
        sequence, response_id = count(), new_id("resp_")
        items = output_items(reply, offered_tools(body))

        def event(event_type: str, **data: object) -> Event:
            return event_type, {"type": event_type, "sequence_number": next(sequence), **data}

        started = _envelope(reply, response_id, "in_progress", [])
        yield event("response.created", response=started)
        yield event("response.in_progress", response=started)
        for index, item in enumerate(items):
            yield from item_events(index, item, event)
        status = _status(reply)
        yield event(f"response.{status}", response=_envelope(reply, response_id, status, items))

    def error_body(self, kind: str, message: str) -> Json:
        """An error in OpenAI's format."""
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": kind}}


def _check_options(body: Json) -> None:
    includes = body.get("include") or []
    if not isinstance(includes, list):
        raise MalformedRequest("include must be a list.")
    for include in includes:
        if include not in KNOWN_INCLUDES:
            raise UnsupportedRequest(f"A response of this endpoint cannot include {include!r}.")
    if body.get("truncation") not in (None, "disabled"):
        raise UnsupportedRequest("This endpoint does not truncate the input: truncation must be disabled.")


def _parse_item(item: Json) -> Iterator[Message]:
    item_type = str(item.get("type", "message"))
    if item_type == "message":
        role = ROLES.get(str(item.get("role")))
        if role is None:
            raise MalformedRequest(f"Unknown role: {item.get('role')!r}.")
        yield Message(role=role, text=content_text(item.get("content")))  # type: ignore[arg-type]
    elif item_type in CALL_ITEMS:
        yield Message(role="assistant", calls=(parse_call_item(item),))
    elif item_type in OUTPUT_ITEMS:
        yield parse_output_item(item)
    elif item_type == "reasoning":
        parts = list_field(item, "summary") + list_field(item, "content")
        reasoning, state = content_text(parts), parse_state_token(item.get("encrypted_content"))
        if reasoning or state:
            yield Message(role="assistant", reasoning=reasoning, provider_state=state)
    elif item_type != "additional_tools":
        raise UnsupportedRequest(f"An item of type {item_type!r} cannot be passed to the model of this run.")


def _parse_choice(body: Json) -> ToolChoice:
    choice, parallel = body.get("tool_choice"), flag_field(body, "parallel_tool_calls")
    if not isinstance(choice, dict):
        return parse_choice_mode(choice, (), parallel)
    if choice.get("type") == "allowed_tools":
        names = tuple(_chosen_name(tool) for tool in list_field(choice, "tools"))
        return parse_choice_mode(choice.get("mode"), names, parallel)
    return ToolChoice(mode="required", names=(_chosen_name(choice),), parallel=parallel)


def _chosen_name(tool: Json) -> str:
    kind = str(tool.get("type"))
    if kind in FIXED_TOOLS:
        return kind
    if kind not in ("function", "custom"):
        raise UnsupportedRequest(f"tool_choice cannot name a tool of type {kind!r}.")
    return function_name(text_field(tool, "name"), text_field(tool, "namespace"))


def _status(reply: Reply) -> str:
    return "incomplete" if reply.finish in INCOMPLETE_REASONS else "completed"


def _envelope(reply: Reply, response_id: str, status: str, output: list[Json]) -> Json:
    usage = {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
    reason = INCOMPLETE_REASONS.get(reply.finish) if status == "incomplete" else None
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None if status == "in_progress" else usage,
    }
