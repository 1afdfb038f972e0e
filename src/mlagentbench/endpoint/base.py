"""An API dialect: how requests become prompts, and replies become responses or event streams."""

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mlagentbench.records import Message, Prompt, Reply

Json = dict[str, Any]
Event = tuple[str, Json]  # the name and the data of a server-sent event
MAX_EVENT_CHARS = 2_000


class MalformedRequest(ValueError):
    """The request cannot be parsed; the message is for the program's author."""


class UnsupportedRequest(MalformedRequest):
    """The request asks for something that no model of a run can be given."""


class Dialect(ABC):
    """One HTTP API for language models."""

    @abstractmethod
    def parse_request(self, body: Json) -> Prompt:
        """Convert a request to a prompt; raises MalformedRequest."""

    @abstractmethod
    def response_body(self, reply: Reply, body: Json) -> Json:
        """The body of a response to the request `body` without streaming."""

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


def merge_assistant_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Merge consecutive assistant messages: they were items of one reply."""
    merged: list[Message] = []
    for message in messages:
        if merged and message.role == merged[-1].role == "assistant":
            last = merged.pop()
            message = last.replace(
                text="\n".join(text for text in (last.text, message.text) if text),
                calls=last.calls + message.calls,
                reasoning="\n".join(text for text in (last.reasoning, message.reasoning) if text),
                provider_state=last.provider_state or message.provider_state,
            )
        merged.append(message)
    return tuple(merged)


def require_question(messages: Iterable[Message], field: str) -> None:
    """Raise MalformedRequest if there is nothing but system messages."""
    if all(message.role == "system" for message in messages):
        raise MalformedRequest(f"{field} is empty.")


def ask_last_instruction(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages; if all are instructions, which OpenAI accepts and others do not, the last one asks."""
    if not messages or any(message.role != "system" for message in messages):
        return tuple(messages)
    return (*messages[:-1], messages[-1].replace(role="user"))


def new_id(prefix: str) -> str:
    """A unique identifier."""
    return f"{prefix}{secrets.token_hex(12)}"


def split_for_stream(text: str) -> Iterator[str]:
    """Split a text into chunks for the events of a stream."""
    yield from (text[start : start + MAX_EVENT_CHARS] for start in range(0, len(text), MAX_EVENT_CHARS))
