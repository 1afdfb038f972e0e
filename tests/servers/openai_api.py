"""Responses in the formats of OpenAI: chat completions and responses."""

from collections.abc import Iterator
from typing import Any

from api_formats import ApiFormat, Response, format_event, split_in_half

CREATED_AT = 1_700_000_000


class Chat(ApiFormat):
    """POST /v1/chat/completions."""

    def stop_sequences(self, body: dict[str, Any]) -> list[str]:
        stop = body.get("stop") or []
        return [stop] if isinstance(stop, str) else list(stop)

    def max_tokens(self, body: dict[str, Any]) -> int | None:
        return body.get("max_completion_tokens") or body.get("max_tokens")

    def find_problem(self, body: dict[str, Any]) -> str:
        if not body.get("messages"):
            return "Missing required parameter: 'messages'."
        return (
            "Invalid 'stop': array too long. Expected at most 4."
            if len(self.stop_sequences(body)) > 4
            else ""
        )

    def _usage(self, response: Response) -> dict[str, Any]:
        input_tokens, output_tokens = response.input_tokens, response.output_tokens
        return {
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }

    def _finish(self, response: Response) -> str:
        return {"calls": "tool_calls", "length": "length"}.get(response.finish_reason, "stop")

    def _head(self, response: Response, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{response.number:06d}",
            "object": kind,
            "created": CREATED_AT,
            "model": response.model,
            "system_fingerprint": "fp_wire",
        }

    def build_body(self, response: Response) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": response.text or None, "refusal": None}
        if response.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in response.calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish(response)}
        choices = [choice] if response.text or response.calls else []
        return {**self._head(response, "chat.completion"), "choices": choices, "usage": self._usage(response)}

    def stream_events(self, response: Response) -> Iterator[bytes]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{"content": piece} for piece in response.chunks]
        for at, call in enumerate(response.calls):
            named = {
                "index": at,
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": ""},
            }
            deltas.append({"tool_calls": [named]})
            for piece in split_in_half(call.arguments):
                deltas.append({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
        head = self._head(response, "chat.completion.chunk")
        ends: list[tuple[dict[str, Any], str | None]] = [(delta, None) for delta in deltas]
        for delta, finish in [*ends, ({}, self._finish(response))]:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            yield format_event({**head, "choices": [choice]})
        if (response.body.get("stream_options") or {}).get("include_usage"):
            yield format_event({**head, "choices": [], "usage": self._usage(response)})
        yield b"data: [DONE]\n\n"


class Responses(ApiFormat):
    """POST /v1/responses."""

    events_before_failure = 5

    def stop_sequences(self, body: dict[str, Any]) -> list[str]:
        return []

    def max_tokens(self, body: dict[str, Any]) -> int | None:
        return body.get("max_output_tokens")

    def find_problem(self, body: dict[str, Any]) -> str:
        if "stop" in body:
            return "Unknown parameter: 'stop'."
        return "" if "input" in body else "Missing required parameter: 'input'."

    def build_stream_error(self, number: int) -> bytes:
        error = {"code": "server_is_overloaded", "message": "The server is overloaded", "param": None}
        return format_event({"type": "error", **error, "sequence_number": number}, "error")

    def _response(self, response: Response, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        input_tokens, output_tokens = response.input_tokens, response.output_tokens
        usage = {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input_tokens + output_tokens,
        }
        return {
            "id": f"resp_{response.number:06d}",
            "object": "response",
            "created_at": CREATED_AT,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": response.body.get("instructions"),
            "model": response.model,
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": response.body.get("tools", []),
            "top_p": 1.0,
            "metadata": {},
            "usage": None if status == "in_progress" else usage,
        }

    def _items(self, response: Response) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if reasoning := response.completion.reasoning:
            summary = [{"type": "summary_text", "text": reasoning}]
            sealed = {"encrypted_content": f"signed {reasoning}"}
            items.append(
                {"id": f"rs_{response.number:06d}", "type": "reasoning", "summary": summary, **sealed}
            )
        if response.text:
            content = [{"type": "output_text", "text": response.text, "annotations": [], "logprobs": []}]
            items.append(
                {
                    "id": f"msg_{response.number:06d}",
                    "type": "message",
                    "role": "assistant",
                    "content": content,
                }
            )
        for at, call in enumerate(response.calls):
            named = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
            items.append({"id": f"fc_{response.number:04d}{at:02d}", "type": "function_call", **named})
        return [{**item, "status": "completed"} for item in items]

    def _status(self, response: Response) -> str:
        return "incomplete" if response.finish_reason == "length" else "completed"

    def build_body(self, response: Response) -> dict[str, Any]:
        return self._response(response, self._status(response), self._items(response))

    def stream_events(self, response: Response) -> Iterator[bytes]:
        started = self._response(response, "in_progress", [])
        events: list[dict[str, Any]] = [
            {"type": f"response.{name}", "response": started} for name in ("created", "in_progress")
        ]
        for index, item in enumerate(self._items(response)):
            at = {"output_index": index, "item_id": item["id"]}
            if item["type"] == "reasoning":
                events += self._reasoning(item, at)
            else:
                events += (
                    self._message(response, item, at) if item["type"] == "message" else self._call(item, at)
                )
        status = self._status(response)
        events.append({"type": f"response.{status}", "response": self.build_body(response)})
        for number, event in enumerate(events):
            yield format_event({**event, "sequence_number": number}, event["type"])

    def _reasoning(self, item: dict[str, Any], at: dict[str, Any]) -> list[dict[str, Any]]:
        index, (part,) = {"output_index": at["output_index"]}, item["summary"]
        inside = {**at, "summary_index": 0}
        opened = {**item, "summary": [], "encrypted_content": ""}
        return [
            {"type": "response.output_item.added", **index, "item": opened},
            {"type": "response.reasoning_summary_part.added", **inside, "part": {**part, "text": ""}},
            {"type": "response.reasoning_summary_text.delta", **inside, "delta": part["text"]},
            {"type": "response.reasoning_summary_text.done", **inside, "text": part["text"]},
            {"type": "response.reasoning_summary_part.done", **inside, "part": part},
            {"type": "response.output_item.done", **index, "item": item},
        ]

    def _message(self, response: Response, item: dict[str, Any], at: dict[str, Any]) -> list[dict[str, Any]]:
        part, inside = item["content"][0], {**at, "content_index": 0}
        opened = {**item, "status": "in_progress", "content": []}
        return [
            {"type": "response.output_item.added", "output_index": at["output_index"], "item": opened},
            {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}},
            *(
                {"type": "response.output_text.delta", **inside, "delta": piece, "logprobs": []}
                for piece in response.chunks
            ),
            {"type": "response.output_text.done", **inside, "text": response.text, "logprobs": []},
            {"type": "response.content_part.done", **inside, "part": part},
            {"type": "response.output_item.done", "output_index": at["output_index"], "item": item},
        ]

    def _call(self, item: dict[str, Any], at: dict[str, Any]) -> list[dict[str, Any]]:
        opened = {**item, "status": "in_progress", "arguments": ""}
        deltas = split_in_half(item["arguments"])
        done = {"name": item["name"], "arguments": item["arguments"]}
        return [
            {"type": "response.output_item.added", "output_index": at["output_index"], "item": opened},
            *({"type": "response.function_call_arguments.delta", **at, "delta": piece} for piece in deltas),
            {"type": "response.function_call_arguments.done", **at, **done},
            {"type": "response.output_item.done", "output_index": at["output_index"], "item": item},
        ]
