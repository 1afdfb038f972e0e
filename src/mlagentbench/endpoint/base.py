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
MOST = 32_000  # tokens of a reply, whatever a program asks for
# Of characters: JSON writes a far one as a pair of escapes, and who cuts texts by length may leave one of the two.
HALVES = re.compile(
    rb"\\(?:\\|u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2}))"
)
PIECE = 2_000  # characters of a reply in one event


class Malformed(ValueError):
    """A question that cannot be read; the message is for the program's author."""


class Dialect(ABC):
    """One way of asking a model over HTTP."""

    path: str

    @abstractmethod
    def read(self, body: Json) -> Prompt:
        """The question in our form."""

    @abstractmethod
    def write(self, reply: Reply) -> Json:
        """The answer in its form."""

    @abstractmethod
    def events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """The answer as a stream."""

    @abstractmethod
    def error(self, kind: str, message: str) -> Json:
        """What went wrong, in its form."""

    def frame(self, event: Event) -> str:
        """One event as it goes over the wire."""
        name, data = event
        return f"event: {name}\ndata: {json.dumps(data)}\n\n"

    end = ""


def parsed(data: bytes) -> Json:
    """A question as it came over the wire; half a character, as programs cut them, does not spoil the rest."""
    try:
        body = from_json(HALVES.sub(lambda found: b"\\ufffd" if found["half"] else found[0], data), allow_inf_nan=False)
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Malformed("a question must be an object")
    return body


def text_of(content: object) -> str:
    """The words of a message, which may come in parts; what is no text is named."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Malformed("content must be a text or a list of parts")
    return "\n".join(_part(part) for part in content)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise Malformed("a part of a content must be an object")
    if "text" in part:
        return str(part["text"])
    return f"[{part.get('type', 'something')} left out]"


def part(body: Json, name: str) -> Json:
    """An object within another; an empty one if it is not there."""
    found = body.get(name) or {}
    if not isinstance(found, dict):
        raise Malformed(f"{name} must be an object")
    return found


def items(body: Json, name: str) -> list[Json]:
    """A list of objects."""
    found = body.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Malformed(f"{name} must be a list of objects")
    return found


def texts(found: object) -> tuple[str, ...]:
    """Stop sequences, of which there may be one, several or none."""
    several = [] if found is None else [found] if isinstance(found, str) else found
    if not isinstance(several, list) or not all(isinstance(each, str) for each in several):
        raise Malformed("stop sequences must be texts")
    return tuple(each for each in several if each)


def limit(*asked: object) -> int:
    """How long the reply may be: the first number that the program names."""
    named = next((number for number in asked if isinstance(number, int) and number > 0), 4000)
    return min(named, MOST)


def tool(about: Json, parameters: str) -> Tool:
    """A tool that the program offers."""
    name, schema = about.get("name"), part(about, parameters)
    if not isinstance(name, str) or not name:
        raise Malformed("a tool must have a name")
    return Tool(name=name, description=str(about.get("description") or ""), parameters=schema)


def merged(talk: Iterable[Message]) -> tuple[Message, ...]:
    """What a model said in several items was one reply."""
    found: list[Message] = []
    for message in talk:
        if found and message.role == found[-1].role == "assistant":
            last = found.pop()
            text = "\n".join(said for said in (last.text, message.text) if said)
            message = last.but(text=text, calls=last.calls + message.calls)
        found.append(message)
    return tuple(found)


def fresh(prefix: str) -> str:
    """An identifier that nobody has used."""
    return f"{prefix}{secrets.token_hex(12)}"


def pieces(text: str) -> Iterator[str]:
    """A long text in parts, as streams carry it."""
    yield from (text[at : at + PIECE] for at in range(0, len(text), PIECE))
