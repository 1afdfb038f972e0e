"""An answer, and what every API makes of it: the whole, or events one after another."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

TOKEN = 4  # characters


@dataclass(frozen=True)
class Says:
    """What the model says, and the tools that it asks for: pairs of name and arguments (a str goes out as it is)."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any] | str], ...] = ()


@dataclass(frozen=True)
class Error:
    status: int
    message: str
    kind: str
    code: str | None


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """What one request gets: cut at its stop sequences and at its limit, with tokens counted."""

    says: Says
    body: dict[str, Any]
    number: int
    spoken: "Dialect"

    @cached_property
    def _cut(self) -> tuple[str, str, str]:
        """The text, why it ended, and the stop sequence at which it did."""
        text, why, at = self.says.text, "stop", ""
        for stop in self.spoken.stops(self.body):
            if stop in text:
                text, why, at = text.partition(stop)[0], "stop_sequence", stop
        limit = self.spoken.limit(self.body)
        if limit and len(text) > limit * TOKEN:
            text, why, at = text[: limit * TOKEN], "length", ""
        return text, "calls" if self.says.calls else why, at

    @property
    def text(self) -> str:
        return self._cut[0]

    @property
    def why(self) -> str:
        return self._cut[1]

    @property
    def stop(self) -> str:
        return self._cut[2]

    @property
    def pieces(self) -> list[str]:
        return [self.text[at : at + 2 * TOKEN] for at in range(0, len(self.text), 2 * TOKEN)]

    @cached_property
    def calls(self) -> list[Call]:
        return [
            Call(f"call_{self.number:04d}{at:02d}", name, args if isinstance(args, str) else json.dumps(args))
            for at, (name, args) in enumerate(self.says.calls)
        ]

    @property
    def input_tokens(self) -> int:
        said = self.body.get("messages") or self.body.get("input") or ""
        return len(json.dumps(said)) // TOKEN

    @property
    def output_tokens(self) -> int:
        return len(self.text) // TOKEN + 8 * len(self.calls) + 1

    @property
    def model(self) -> str:
        return str(self.body.get("model", "wire-1"))


class Dialect(ABC):
    """One API."""

    middle = 3  # events after which an answer has begun

    @abstractmethod
    def stops(self, body: dict[str, Any]) -> list[str]: ...

    @abstractmethod
    def limit(self, body: dict[str, Any]) -> int | None: ...

    @abstractmethod
    def problem(self, body: dict[str, Any]) -> str: ...

    @abstractmethod
    def whole(self, answer: Answer) -> dict[str, Any]: ...

    @abstractmethod
    def events(self, answer: Answer) -> Iterator[bytes]: ...

    def complaint(self, number: int) -> bytes:
        """An error inside a stream that began well."""
        return data(self.error(Error(503, "The server is overloaded", "server_error", "server_is_overloaded")))

    def error(self, error: Error) -> dict[str, Any]:
        kind = error.kind or ("server_error" if error.status >= 500 else "invalid_request_error")
        kind = "requests" if error.status == 429 and not error.kind else kind
        code = error.code or ("rate_limit_exceeded" if error.status == 429 else None)
        return {"error": {"message": error.message, "type": kind, "param": None, "code": code}}


def data(body: dict[str, Any], event: str = "") -> bytes:
    """One server-sent event."""
    named = f"event: {event}\n" if event else ""
    return f"{named}data: {json.dumps(body)}\n\n".encode()


def halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [text[:middle], text[middle:]]
