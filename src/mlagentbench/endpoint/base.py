"""What the dialects have in common: questions read from JSON, answers written as JSON or as a stream of events."""

import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic_core import from_json

from mlagentbench.records import Message, Prompt, Reply, Tool

Json = dict[str, Any]
Event = tuple[str, Json]  # the name of an event of a stream, and what it carries
MAX_REPLY_TOKENS = 32_000  # tokens of a reply, whatever a program asks for
# Of characters: JSON writes a far one as a pair of escapes, and who cuts texts by length may leave one of the two.
SURROGATE_ESCAPE = re.compile(
    rb"\\(?:\\|u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2}))"
)
MAX_EVENT_CHARS = 2_000  # characters of a reply in one event


class MalformedRequest(ValueError):
    """A question that cannot be read; the message is for the program's author."""


class Dialect(ABC):
    """One way of asking a model over HTTP."""

    path: str

    @abstractmethod
    def parse_request(self, body: Json) -> Prompt:
        """The question in our form."""

    @abstractmethod
    def response_body(self, reply: Reply) -> Json:
        """The answer in its form."""

    @abstractmethod
    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """The answer as a stream."""

    @abstractmethod
    def error_body(self, kind: str, message: str) -> Json:
        """What went wrong, in its form."""

    def encode_event(self, event: Event) -> str:
        """One event as it goes over the wire."""
        name, data = event
        return f"event: {name}\ndata: {json.dumps(data)}\n\n"

    stream_end = ""


def parse_body(data: bytes) -> Json:
    """A question as it came over the wire; half a character, as programs cut them, does not spoil the rest."""
    try:
        body = from_json(
            SURROGATE_ESCAPE.sub(lambda found: b"\\ufffd" if found["half"] else found[0], data),
            allow_inf_nan=False,
        )
    except ValueError as error:
        raise MalformedRequest(f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise MalformedRequest("a question must be an object")
    return body


def content_text(content: object) -> str:
    """The words of a message, which may come in parts; what is no text is named."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise MalformedRequest("content must be a text or a list of parts")
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise MalformedRequest("a part of a content must be an object")
    if "text" in part:
        return str(part["text"])
    return f"[{part.get('type', 'something')} left out]"


def object_field(body: Json, name: str) -> Json:
    """An object within another; an empty one if it is not there."""
    found = body.get(name) or {}
    if not isinstance(found, dict):
        raise MalformedRequest(f"{name} must be an object")
    return found


def list_field(body: Json, name: str) -> list[Json]:
    """A list of objects."""
    found = body.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise MalformedRequest(f"{name} must be a list of objects")
    return found


def parse_stop_sequences(found: object) -> tuple[str, ...]:
    """Stop sequences, of which there may be one, several or none."""
    several = [] if found is None else [found] if isinstance(found, str) else found
    if not isinstance(several, list) or not all(isinstance(each, str) for each in several):
        raise MalformedRequest("stop sequences must be texts")
    return tuple(each for each in several if each)


def choose_token_limit(*asked: object) -> int:
    """How long the reply may be: the first number that the program names."""
    named = next((number for number in asked if isinstance(number, int) and number > 0), 4000)
    return min(named, MAX_REPLY_TOKENS)


def parse_tool(about: Json, parameters: str) -> Tool:
    """A tool that the program offers."""
    name, schema = about.get("name"), object_field(about, parameters)
    if not isinstance(name, str) or not name:
        raise MalformedRequest("a tool must have a name")
    return Tool(name=name, description=str(about.get("description") or ""), parameters=schema)


def merge_assistant_messages(talk: Iterable[Message]) -> tuple[Message, ...]:
    """What a model said in several items was one reply."""
    found: list[Message] = []
    for message in talk:
        if found and message.role == found[-1].role == "assistant":
            last = found.pop()
            text = "\n".join(said for said in (last.text, message.text) if said)
            message = last.replace(text=text, calls=last.calls + message.calls)
        found.append(message)
    return tuple(found)


def new_id(prefix: str) -> str:
    """An identifier that nobody has used."""
    return f"{prefix}{secrets.token_hex(12)}"


def split_for_stream(text: str) -> Iterator[str]:
    """A long text in parts, as streams carry it."""
    yield from (text[at : at + MAX_EVENT_CHARS] for at in range(0, len(text), MAX_EVENT_CHARS))
