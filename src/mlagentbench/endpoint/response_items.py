"""The output of the OpenAI responses API: the items of a reply, and the events that stream them."""

from collections.abc import Callable, Iterator

from mlagentbench.endpoint.base import Event, Json, new_id, split_for_stream
from mlagentbench.endpoint.reasoning import state_token
from mlagentbench.endpoint.response_tools import OfferedTool, call_item
from mlagentbench.records import Reply

BuildEvent = Callable[..., Event]
# Items whose main field is streamed: the field, and the name of its events.
STREAMED_FIELDS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


def output_items(reply: Reply, tools: dict[str, OfferedTool]) -> list[Json]:
    """The reasoning, the message and the calls of a reply."""
    items: list[Json] = []
    if reply.reasoning or reply.provider_state:
        summary = [{"type": "summary_text", "text": reply.reasoning}] if reply.reasoning else []
        state = state_token(reply) or None
        items.append(
            {"type": "reasoning", "id": new_id("rs_"), "summary": summary, "encrypted_content": state}
        )
    if reply.text or not reply.calls:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        item = {"type": "message", "id": new_id("msg_"), "status": "completed", "role": "assistant"}
        items.append({**item, "content": [part]})
    return items + [call_item(call, tools) for call in reply.calls]


def item_events(index: int, item: Json, event: BuildEvent) -> Iterator[Event]:
    """The events of one item."""
    location = {"output_index": index, "item_id": item["id"]}
    yield event("response.output_item.added", output_index=index, item=_started_item(item))
    if item["type"] == "message":
        yield from _message_events(item, {**location, "content_index": 0}, event)
    elif item["type"] == "reasoning":
        yield from _reasoning_events(item, {**location, "summary_index": 0}, event)
    elif item["type"] in STREAMED_FIELDS:
        field, name = STREAMED_FIELDS[item["type"]]
        for chunk in split_for_stream(item[field]):
            yield event(f"{name}.delta", delta=chunk, **location)
        yield event(f"{name}.done", **{field: item[field], "name": item["name"]}, **location)
    yield event("response.output_item.done", output_index=index, item=item)


def _started_item(item: Json) -> Json:
    """The item before its content is streamed."""
    if item["type"] == "reasoning":
        return {**item, "summary": [], "encrypted_content": None}
    if item["type"] in STREAMED_FIELDS:
        return {**item, "status": "in_progress", STREAMED_FIELDS[item["type"]][0]: ""}
    return {**item, "status": "in_progress", **({"content": []} if item["type"] == "message" else {})}


def _message_events(item: Json, location: Json, event: BuildEvent) -> Iterator[Event]:
    (part,) = item["content"]
    yield event("response.content_part.added", part={**part, "text": ""}, **location)
    for chunk in split_for_stream(part["text"]):
        yield event("response.output_text.delta", delta=chunk, logprobs=[], **location)
    yield event("response.output_text.done", text=part["text"], logprobs=[], **location)
    yield event("response.content_part.done", part=part, **location)


def _reasoning_events(item: Json, location: Json, event: BuildEvent) -> Iterator[Event]:
    for part in item["summary"]:
        yield event("response.reasoning_summary_part.added", part={**part, "text": ""}, **location)
        for chunk in split_for_stream(part["text"]):
            yield event("response.reasoning_summary_text.delta", delta=chunk, **location)
        yield event("response.reasoning_summary_text.done", text=part["text"], **location)
        yield event("response.reasoning_summary_part.done", part=part, **location)
