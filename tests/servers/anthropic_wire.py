"""An answer as Anthropic's messages put it."""

import json
from collections.abc import Iterator
from typing import Any

from dialects import Answer, Dialect, Error, data, halves

ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class Messages(Dialect):
    """POST /v1/messages."""

    def stops(self, body: dict[str, Any]) -> list[str]:
        return list(body.get("stop_sequences") or [])

    def limit(self, body: dict[str, Any]) -> int | None:
        return body.get("max_tokens")

    def problem(self, body: dict[str, Any]) -> str:
        if not body.get("max_tokens"):
            return "max_tokens: Field required"
        if any(not stop.strip() for stop in self.stops(body)):
            return "stop_sequences: each stop sequence must contain non-whitespace"
        first = (body.get("messages") or [{}])[0].get("role")
        return "" if first == "user" else "messages: first message must use the user role"

    def error(self, error: Error) -> dict[str, Any]:
        kind = error.kind or ERRORS.get(error.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": error.message}, "request_id": "req_wire"}

    def complaint(self, number: int) -> bytes:
        return data(self.error(Error(529, "Overloaded", "", None)), "error")

    def _why(self, answer: Answer) -> dict[str, Any]:
        reasons = {"calls": "tool_use", "length": "max_tokens", "stop_sequence": "stop_sequence"}
        return {"stop_reason": reasons.get(answer.why, "end_turn"), "stop_sequence": answer.stop or None}

    def _blocks(self, answer: Answer) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
        for call in answer.calls:
            use = {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name}
            blocks.append({**use, "input": json.loads(call.arguments)})
        return blocks

    def _message(self, answer: Answer, content: list[dict[str, Any]], said: int) -> dict[str, Any]:
        usage = {
            "input_tokens": answer.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": said,
            "service_tier": "standard",
        }
        return {
            "id": f"msg_{answer.number:06d}",
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def whole(self, answer: Answer) -> dict[str, Any]:
        return {**self._message(answer, self._blocks(answer), answer.output_tokens), **self._why(answer)}

    def events(self, answer: Answer) -> Iterator[bytes]:
        found: list[dict[str, Any]] = [{"type": "message_start", "message": self._message(answer, [], 1)}]
        for index, block in enumerate(self._blocks(answer)):
            if block["type"] == "text":
                empty: dict[str, Any] = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
            else:
                empty = {**block, "input": {}}
                pieces = ["", *halves(json.dumps(block["input"]))]
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            found.append({"type": "content_block_start", "index": index, "content_block": empty})
            found += [{"type": "ping"}] if index == 0 else []
            found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            found.append({"type": "content_block_stop", "index": index})
        end = {"delta": self._why(answer), "usage": {"output_tokens": answer.output_tokens}}
        for event in [*found, {"type": "message_delta", **end}, {"type": "message_stop"}]:
            yield data(event, event["type"])
