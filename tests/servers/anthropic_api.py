"""Responses in the format of Anthropic: messages."""

import json
from collections.abc import Iterator
from typing import Any

from api_formats import ApiError, ApiFormat, Response, format_event, split_in_half

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


class Messages(ApiFormat):
    """POST /v1/messages."""

    def stop_sequences(self, body: dict[str, Any]) -> list[str]:
        return list(body.get("stop_sequences") or [])

    def max_tokens(self, body: dict[str, Any]) -> int | None:
        return body.get("max_tokens")

    def find_problem(self, body: dict[str, Any]) -> str:
        if not body.get("max_tokens"):
            return "max_tokens: Field required"
        if any(not stop.strip() for stop in self.stop_sequences(body)):
            return "stop_sequences: each stop sequence must contain non-whitespace"
        first = (body.get("messages") or [{}])[0].get("role")
        return "" if first == "user" else "messages: first message must use the user role"

    def build_error(self, error: ApiError) -> dict[str, Any]:
        kind = error.kind or ERRORS.get(error.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": error.message}, "request_id": "req_wire"}

    def build_stream_error(self, number: int) -> bytes:
        return format_event(self.build_error(ApiError(529, "Overloaded", "", None)), "error")

    def _stop_reason(self, response: Response) -> dict[str, Any]:
        reasons = {"calls": "tool_use", "length": "max_tokens", "stop_sequence": "stop_sequence"}
        return {
            "stop_reason": reasons.get(response.finish_reason, "end_turn"),
            "stop_sequence": response.matched_stop or None,
        }

    def _blocks(self, response: Response) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if reasoning := response.completion.reasoning:
            blocks.append({"type": "thinking", "thinking": reasoning, "signature": f"signed {reasoning}"})
        blocks += [{"type": "text", "text": response.text}] if response.text else []
        for call in response.calls:
            use = {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name}
            blocks.append({**use, "input": json.loads(call.arguments)})
        return blocks

    def _message(
        self, response: Response, content: list[dict[str, Any]], output_tokens: int
    ) -> dict[str, Any]:
        usage = {
            "input_tokens": response.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": output_tokens,
            "service_tier": "standard",
        }
        return {
            "id": f"msg_{response.number:06d}",
            "type": "message",
            "role": "assistant",
            "model": response.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def build_body(self, response: Response) -> dict[str, Any]:
        return {
            **self._message(response, self._blocks(response), response.output_tokens),
            **self._stop_reason(response),
        }

    def stream_events(self, response: Response) -> Iterator[bytes]:
        events: list[dict[str, Any]] = [{"type": "message_start", "message": self._message(response, [], 1)}]
        for index, block in enumerate(self._blocks(response)):
            if block["type"] == "text":
                empty: dict[str, Any] = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in response.chunks]
            elif block["type"] == "thinking":
                empty = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": block["thinking"]},
                    {"type": "signature_delta", "signature": block["signature"]},
                ]
            else:
                empty = {**block, "input": {}}
                pieces = ["", *split_in_half(json.dumps(block["input"]))]
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            events.append({"type": "content_block_start", "index": index, "content_block": empty})
            events += [{"type": "ping"}] if index == 0 else []
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": index})
        end = {"delta": self._stop_reason(response), "usage": {"output_tokens": response.output_tokens}}
        for event in [*events, {"type": "message_delta", **end}, {"type": "message_stop"}]:
            yield format_event(event, event["type"])
