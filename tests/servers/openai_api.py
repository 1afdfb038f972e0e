"""An answer as OpenAI's chat completions and responses put it."""

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

    def _usage(self, answer: Response) -> dict[str, Any]:
        heard, said = answer.input_tokens, answer.output_tokens
        return {
            "prompt_tokens": heard,
            "completion_tokens": said,
            "total_tokens": heard + said,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }

    def _finish(self, answer: Response) -> str:
        return {"calls": "tool_calls", "length": "length"}.get(answer.finish_reason, "stop")

    def _head(self, answer: Response, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{answer.number:06d}",
            "object": kind,
            "created": CREATED_AT,
            "model": answer.model,
            "system_fingerprint": "fp_wire",
        }

    def build_body(self, answer: Response) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in answer.calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish(answer)}
        choices = [choice] if answer.text or answer.calls else []
        return {**self._head(answer, "chat.completion"), "choices": choices, "usage": self._usage(answer)}

    def stream_events(self, answer: Response) -> Iterator[bytes]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{"content": piece} for piece in answer.chunks]
        for at, call in enumerate(answer.calls):
            named = {
                "index": at,
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": ""},
            }
            deltas.append({"tool_calls": [named]})
            for piece in split_in_half(call.arguments):
                deltas.append({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
        head = self._head(answer, "chat.completion.chunk")
        ends: list[tuple[dict[str, Any], str | None]] = [(delta, None) for delta in deltas]
        for delta, finish in [*ends, ({}, self._finish(answer))]:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            yield format_event({**head, "choices": [choice]})
        if (answer.body.get("stream_options") or {}).get("include_usage"):
            yield format_event({**head, "choices": [], "usage": self._usage(answer)})
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

    def _response(self, answer: Response, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        heard, said = answer.input_tokens, answer.output_tokens
        usage = {
            "input_tokens": heard,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": said,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": heard + said,
        }
        return {
            "id": f"resp_{answer.number:06d}",
            "object": "response",
            "created_at": CREATED_AT,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": answer.body.get("instructions"),
            "model": answer.model,
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": answer.body.get("tools", []),
            "top_p": 1.0,
            "metadata": {},
            "usage": None if status == "in_progress" else usage,
        }

    def _items(self, answer: Response) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if answer.text:
            content = [{"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}]
            items.append(
                {"id": f"msg_{answer.number:06d}", "type": "message", "role": "assistant", "content": content}
            )
        for at, call in enumerate(answer.calls):
            named = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
            items.append({"id": f"fc_{answer.number:04d}{at:02d}", "type": "function_call", **named})
        return [{**item, "status": "completed"} for item in items]

    def _status(self, answer: Response) -> str:
        return "incomplete" if answer.finish_reason == "length" else "completed"

    def build_body(self, answer: Response) -> dict[str, Any]:
        return self._response(answer, self._status(answer), self._items(answer))

    def stream_events(self, answer: Response) -> Iterator[bytes]:
        begun = self._response(answer, "in_progress", [])
        found: list[dict[str, Any]] = [
            {"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")
        ]
        for index, item in enumerate(self._items(answer)):
            at = {"output_index": index, "item_id": item["id"]}
            found += self._message(answer, item, at) if item["type"] == "message" else self._call(item, at)
        status = self._status(answer)
        found.append({"type": f"response.{status}", "response": self.build_body(answer)})
        for number, event in enumerate(found):
            yield format_event({**event, "sequence_number": number}, event["type"])

    def _message(self, answer: Response, item: dict[str, Any], at: dict[str, Any]) -> list[dict[str, Any]]:
        part, inside = item["content"][0], {**at, "content_index": 0}
        opened = {**item, "status": "in_progress", "content": []}
        return [
            {"type": "response.output_item.added", "output_index": at["output_index"], "item": opened},
            {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}},
            *(
                {"type": "response.output_text.delta", **inside, "delta": piece, "logprobs": []}
                for piece in answer.chunks
            ),
            {"type": "response.output_text.done", **inside, "text": answer.text, "logprobs": []},
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
