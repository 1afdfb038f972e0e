"""A scripted completion, and the base class of the APIs that return it: as one body or as events."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class Completion:
    """The text of a reply and its tool calls: pairs of name and arguments (a str is sent as it is).

    Only the Anthropic and the OpenAI responses API send the reasoning, with a signature.
    """

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any] | str], ...] = ()
    reasoning: str = ""


@dataclass(frozen=True)
class ApiError:
    status: int
    message: str
    kind: str
    code: str | None


@dataclass(frozen=True)
class RequestedCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Response:
    """The response to one request: truncated at stop sequences and the token limit, with tokens counted."""

    completion: Completion
    body: dict[str, Any]
    number: int
    api: "ApiFormat"

    @cached_property
    def _truncated(self) -> tuple[str, str, str]:
        """The text, the finish reason, and the stop sequence that ended it."""
        text, reason, matched = self.completion.text, "stop", ""
        for stop in self.api.stop_sequences(self.body):
            if stop in text:
                text, reason, matched = text.partition(stop)[0], "stop_sequence", stop
        limit = self.api.max_tokens(self.body)
        if limit and len(text) > limit * CHARS_PER_TOKEN:
            text, reason, matched = text[: limit * CHARS_PER_TOKEN], "length", ""
        return text, "calls" if self.completion.calls else reason, matched

    @property
    def text(self) -> str:
        return self._truncated[0]

    @property
    def finish_reason(self) -> str:
        return self._truncated[1]

    @property
    def matched_stop(self) -> str:
        return self._truncated[2]

    @property
    def chunks(self) -> list[str]:
        size = 2 * CHARS_PER_TOKEN
        return [self.text[start : start + size] for start in range(0, len(self.text), size)]

    @cached_property
    def calls(self) -> list[RequestedCall]:
        return [
            RequestedCall(
                f"call_{self.number:04d}{index:02d}",
                name,
                args if isinstance(args, str) else json.dumps(args),
            )
            for index, (name, args) in enumerate(self.completion.calls)
        ]

    @property
    def input_tokens(self) -> int:
        messages = self.body.get("messages") or self.body.get("input") or ""
        return len(json.dumps(messages)) // CHARS_PER_TOKEN

    @property
    def output_tokens(self) -> int:
        return len(self.text) // CHARS_PER_TOKEN + 8 * len(self.calls) + 1

    @property
    def model(self) -> str:
        return str(self.body.get("model", "wire-1"))


class ApiFormat(ABC):
    """The request and response format of one API."""

    events_before_failure = 3  # a broken stream fails after so many events

    @abstractmethod
    def stop_sequences(self, body: dict[str, Any]) -> list[str]: ...

    @abstractmethod
    def max_tokens(self, body: dict[str, Any]) -> int | None: ...

    @abstractmethod
    def find_problem(self, body: dict[str, Any]) -> str: ...

    @abstractmethod
    def build_body(self, response: Response) -> dict[str, Any]: ...

    @abstractmethod
    def stream_events(self, response: Response) -> Iterator[bytes]: ...

    def build_stream_error(self, number: int) -> bytes:
        """An error event inside a stream."""
        error = ApiError(503, "The server is overloaded", "server_error", "server_is_overloaded")
        return format_event(self.build_error(error))

    def build_error(self, error: ApiError) -> dict[str, Any]:
        kind = error.kind or ("server_error" if error.status >= 500 else "invalid_request_error")
        kind = "requests" if error.status == 429 and not error.kind else kind
        code = error.code or ("rate_limit_exceeded" if error.status == 429 else None)
        return {"error": {"message": error.message, "type": kind, "param": None, "code": code}}


def format_event(body: dict[str, Any], event: str = "") -> bytes:
    """Format one server-sent event."""
    header = f"event: {event}\n" if event else ""
    return f"{header}data: {json.dumps(body)}\n\n".encode()


def split_in_half(text: str) -> list[str]:
    middle = len(text) // 2
    return [text[:middle], text[middle:]]
