"""Shared by the API dialects: parsing requests from JSON, writing replies as JSON or as an event stream."""

import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic_core import from_json

from mlagentbench.records import Message, Prompt, Reply, Tool

Json = dict[str, Any]
Event = tuple[str, Json]  # the name and the data of a server-sent event
MAX_REPLY_TOKENS = 32_000  # whatever a program asks for
# JSON escapes some characters as a surrogate pair; a program that cuts text by length may leave half of one.
SURROGATE_ESCAPE = re.compile(
    rb"\\(?:\\|u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2}))"
)
MAX_EVENT_CHARS = 2_000
DEFAULT_REPLY_TOKENS = 4000


class MalformedRequest(ValueError):
    """The request cannot be parsed; the message is for the program's author."""


class Dialect(ABC):
    """One HTTP API for language models."""

    path: str

    @abstractmethod
    def parse_request(self, body: Json) -> Prompt:
        """Convert a request to a prompt; raises MalformedRequest."""

    @abstractmethod
    def response_body(self, reply: Reply) -> Json:
        """The body of a response without streaming."""

    @abstractmethod
    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """The events of a streamed response to the request `body`."""

    @abstractmethod
    def error_body(self, kind: str, message: str) -> Json:
        """The body of an error response."""

    def encode_event(self, event: Event) -> str:
        """Encode one server-sent event."""
        name, data = event
        return f"event: {name}\ndata: {json.dumps(data)}\n\n"

    stream_end = ""


def parse_body(data: bytes) -> Json:
    """Parse the body of a request; unpaired surrogates are replaced instead of invalidating it."""
    try:
        body = from_json(
            SURROGATE_ESCAPE.sub(lambda match: b"\\ufffd" if match["half"] else match[0], data),
            allow_inf_nan=False,
        )
    except ValueError as error:
        raise MalformedRequest(f"The request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise MalformedRequest("The request must be a JSON object.")
    return body


def content_text(content: object) -> str:
    """The text of a message's content, which may be in parts; for other parts, a note names their type."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise MalformedRequest("content must be a string or a list of parts.")
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise MalformedRequest("A part of content must be an object.")
    if "text" in part:
        return str(part["text"])
    return f"[{part.get('type', 'part')} omitted]"


def object_field(body: Json, name: str) -> Json:
    """An object in the body; empty if it is missing."""
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise MalformedRequest(f"{name} must be an object.")
    return value


def list_field(body: Json, name: str) -> list[Json]:
    """A list of objects in the body; empty if it is missing."""
    value = body.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise MalformedRequest(f"{name} must be a list of objects.")
    return value


def parse_stop_sequences(value: object) -> tuple[str, ...]:
    """Parse one, several or no stop sequences."""
    sequences = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(sequences, list) or not all(isinstance(sequence, str) for sequence in sequences):
        raise MalformedRequest("Stop sequences must be strings.")
    return tuple(sequence for sequence in sequences if sequence)


def choose_token_limit(*requested: object) -> int:
    """The limit for the reply: the first positive number of those requested, within our own limit."""
    limits = (number for number in requested if isinstance(number, int) and number > 0)
    return min(next(limits, DEFAULT_REPLY_TOKENS), MAX_REPLY_TOKENS)


def parse_tool(definition: Json, parameters_field: str) -> Tool:
    """Parse the definition of a tool."""
    name, schema = definition.get("name"), object_field(definition, parameters_field)
    if not isinstance(name, str) or not name:
        raise MalformedRequest("A tool must have a name.")
    return Tool(name=name, description=str(definition.get("description") or ""), parameters=schema)


def merge_assistant_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Merge consecutive assistant messages: they were items of one reply."""
    merged: list[Message] = []
    for message in messages:
        if merged and message.role == merged[-1].role == "assistant":
            last = merged.pop()
            text = "\n".join(text for text in (last.text, message.text) if text)
            message = last.replace(text=text, calls=last.calls + message.calls)
        merged.append(message)
    return tuple(merged)


def new_id(prefix: str) -> str:
    """A unique identifier."""
    return f"{prefix}{secrets.token_hex(12)}"


def split_for_stream(text: str) -> Iterator[str]:
    """Split a text into chunks for the events of a stream."""
    yield from (text[start : start + MAX_EVENT_CHARS] for start in range(0, len(text), MAX_EVENT_CHARS))
