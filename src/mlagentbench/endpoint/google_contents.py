"""The contents of Google's generateContent API: messages, calls and their responses, and schemas."""

import json
from collections.abc import Iterator

from mlagentbench.endpoint.base import Json, MalformedRequest
from mlagentbench.endpoint.fields import list_field, object_field, text_field, unsupported_part
from mlagentbench.endpoint.reasoning import parse_state_token
from mlagentbench.records import Message, ToolCall


class ContentParser:
    """Converts contents to messages. Calls without an id get one, and responses are matched by name."""

    def __init__(self) -> None:
        self._call_count = 0
        self._unanswered: list[ToolCall] = []

    def parse(self, contents: list[Json]) -> Iterator[Message]:
        """The messages of a conversation; responses of functions become separate messages."""
        for content in contents:
            role = content.get("role") or "user"
            if role not in ("user", "model", "function"):
                raise MalformedRequest(f"Unknown role: {role!r}.")
            yield from self._parse_content(list_field(content, "parts"), is_model=role == "model")

    def _parse_content(self, parts: list[Json], is_model: bool) -> Iterator[Message]:
        texts, thoughts, calls, state = list[str](), list[str](), list[ToolCall](), ""
        for part in parts:
            state = state or parse_state_token(part.get("thoughtSignature"))
            if "functionResponse" in part:
                yield self._parse_response(object_field(part, "functionResponse"))
            elif "functionCall" in part:
                calls.append(self._parse_call(object_field(part, "functionCall")))
            elif "text" in part:
                (thoughts if part.get("thought") else texts).append(text_field(part, "text"))
            elif part.keys() - {"thought", "thoughtSignature"}:
                raise unsupported_part(_describe_part(part))
        if texts or thoughts or calls or state:
            yield Message(
                role="assistant" if is_model else "user",
                text=("" if is_model else "\n").join(texts),  # parts of a model are chunks of its stream
                calls=tuple(calls),
                reasoning="".join(thoughts),
                provider_state=state,
            )

    def _parse_call(self, part: Json) -> ToolCall:
        self._call_count += 1
        name, arguments = text_field(part, "name"), json.dumps(object_field(part, "args"), ensure_ascii=False)
        call_id = text_field(part, "id") or f"call-{self._call_count}"
        call = ToolCall(id=call_id, name=name, arguments=arguments)
        self._unanswered.append(call)
        return call

    def _parse_response(self, part: Json) -> Message:
        if list_field(part, "parts"):
            raise unsupported_part(_describe_part(list_field(part, "parts")[0]))
        call_id, name, response = text_field(part, "id"), text_field(part, "name"), part.get("response")
        call = next(
            (call for call in self._unanswered if call_id in ("", call.id) and call.name == name), None
        )
        if call:
            self._unanswered.remove(call)
        return Message(role="tool", text=_response_text(response), answers=call.id if call else call_id)


def system_text(part: Json) -> str:
    """The text of a part of the system instruction; other parts are refused."""
    if "text" not in part:
        raise unsupported_part(_describe_part(part))
    return text_field(part, "text")


def _response_text(response: object) -> str:
    """The text of a function's response; an object with more than an output is passed as JSON."""
    if isinstance(response, dict) and response.keys() == {"output"} and isinstance(response["output"], str):
        return str(response["output"])
    return json.dumps(response, ensure_ascii=False)


def _describe_part(part: Json) -> str:
    data = part.get("inlineData") or part.get("fileData")
    if isinstance(data, dict):
        return str(data.get("mimeType") or data.get("mime_type") or "file")
    return next(iter(part), "part")


def to_json_schema(schema: object) -> Json:
    """A JSON schema for a schema in Google's form, whose types are in capitals."""

    def convert(value: object, *, is_schema: bool) -> object:
        if isinstance(value, list):
            return [convert(item, is_schema=is_schema) for item in value]
        if not isinstance(value, dict):
            return value
        result = {
            name: convert(item, is_schema=not (is_schema and name == "properties"))
            for name, item in value.items()
        }
        if is_schema and isinstance(kind := result.get("type"), str):
            result["type"] = kind.lower()
            if result.pop("nullable", False) is True:
                result["type"] = [kind.lower(), "null"]
        return result

    converted = convert(schema, is_schema=True)
    assert isinstance(converted, dict)
    return converted
