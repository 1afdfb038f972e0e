"""An answer, and what every API makes of it: the whole, or events one after another."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

CHARS_PER_TOKEN = 4  # characters


@dataclass(frozen=True)
class Completion:
    """What the model says, and the tools that it asks for: pairs of name and arguments (a str goes out as it is)."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any] | str], ...] = ()


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
    """What one request gets: cut at its stop sequences and at its limit, with tokens counted."""

    completion: Completion
    body: dict[str, Any]
    number: int
    api: "ApiFormat"

    @cached_property
    def _truncated(self) -> tuple[str, str, str]:
        """The text, why it ended, and the stop sequence at which it did."""
        text, why, at = self.completion.text, "stop", ""
        for stop in self.api.stop_sequences(self.body):
            if stop in text:
                text, why, at = text.partition(stop)[0], "stop_sequence", stop
        limit = self.api.max_tokens(self.body)
        if limit and len(text) > limit * CHARS_PER_TOKEN:
            text, why, at = text[: limit * CHARS_PER_TOKEN], "length", ""
        return text, "calls" if self.completion.calls else why, at

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
        return [
            self.text[at : at + 2 * CHARS_PER_TOKEN] for at in range(0, len(self.text), 2 * CHARS_PER_TOKEN)
        ]

    @cached_property
    def calls(self) -> list[RequestedCall]:
        return [
            RequestedCall(
                f"call_{self.number:04d}{at:02d}", name, args if isinstance(args, str) else json.dumps(args)
            )
            for at, (name, args) in enumerate(self.completion.calls)
        ]

    @property
    def input_tokens(self) -> int:
        said = self.body.get("messages") or self.body.get("input") or ""
        return len(json.dumps(said)) // CHARS_PER_TOKEN

    @property
    def output_tokens(self) -> int:
        return len(self.text) // CHARS_PER_TOKEN + 8 * len(self.calls) + 1

    @property
    def model(self) -> str:
        return str(self.body.get("model", "wire-1"))


class ApiFormat(ABC):
    """One API."""

    events_before_failure = 3  # events after which an answer has begun

    @abstractmethod
    def stop_sequences(self, body: dict[str, Any]) -> list[str]: ...

    @abstractmethod
    def max_tokens(self, body: dict[str, Any]) -> int | None: ...

    @abstractmethod
    def find_problem(self, body: dict[str, Any]) -> str: ...

    @abstractmethod
    def build_body(self, answer: Response) -> dict[str, Any]: ...

    @abstractmethod
    def stream_events(self, answer: Response) -> Iterator[bytes]: ...

    def build_stream_error(self, number: int) -> bytes:
        """An error inside a stream that began well."""
        return format_event(
            self.build_error(
                ApiError(503, "The server is overloaded", "server_error", "server_is_overloaded")
            )
        )

    def build_error(self, error: ApiError) -> dict[str, Any]:
        kind = error.kind or ("server_error" if error.status >= 500 else "invalid_request_error")
        kind = "requests" if error.status == 429 and not error.kind else kind
        code = error.code or ("rate_limit_exceeded" if error.status == 429 else None)
        return {"error": {"message": error.message, "type": kind, "param": None, "code": code}}


def format_event(body: dict[str, Any], event: str = "") -> bytes:
    """One server-sent event."""
    named = f"event: {event}\n" if event else ""
    return f"{named}data: {json.dumps(body)}\n\n".encode()


def split_in_half(text: str) -> list[str]:
    middle = len(text) // 2
    return [text[:middle], text[middle:]]
