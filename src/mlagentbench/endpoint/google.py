"""Google's generateContent API."""

import json
from collections.abc import Iterator

from mlagentbench.endpoint.base import (
    Dialect,
    Event,
    Json,
    MalformedRequest,
    UnsupportedRequest,
    new_id,
    require_question,
    split_for_stream,
)
from mlagentbench.endpoint.fields import (
    build_sampling,
    effort_for_budget,
    integer_field,
    list_field,
    object_field,
    parse_json_schema,
    parse_stop_sequences,
    parse_token_limit,
    parse_tool,
    refuse_hosted_tool,
    refuse_unknown_fields,
    text_field,
)
from mlagentbench.endpoint.google_contents import ContentParser, system_text, to_json_schema
from mlagentbench.endpoint.reasoning import state_token
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.records import Message, Prompt, Reply, ReplyFormat, Tool, ToolChoice

CARRIED = {"contents", "systemInstruction", "system_instruction", "tools", "toolConfig", "generationConfig"}
NEUTRAL = {"model", "stream", "safetySettings", "labels", "store"}
SAMPLING = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
CONFIG_FIELDS = {
    *SAMPLING,
    *("maxOutputTokens", "stopSequences", "responseMimeType", "responseSchema", "responseJsonSchema"),
    *("thinkingConfig",),
}
CHOICE_MODES = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
FINISH_REASONS = {"stop": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"}
STATUSES = {
    "budget": (403, "PERMISSION_DENIED"),
    "model": (502, "UNAVAILABLE"),
    "unknown_path": (404, "NOT_FOUND"),
}


class Google(Dialect):
    """POST /v1beta/models/NAME:generateContent and :streamGenerateContent."""

    def parse_request(self, body: Json) -> Prompt:
        """Parse the system instruction, then contents with text, function calls and their responses."""
        refuse_unknown_fields(body, CARRIED, NEUTRAL)
        config = object_field(body, "generationConfig")
        if config.get("candidateCount") == 1:
            config = {name: value for name, value in config.items() if name != "candidateCount"}
        refuse_unknown_fields(config, CONFIG_FIELDS, ("mediaResolution",))
        messages = [*_parse_system(body), *ContentParser().parse(list_field(body, "contents"))]
        require_question(messages, "contents")
        return Prompt(
            messages=tuple(messages),
            stop=parse_stop_sequences(config.get("stopSequences")),
            tools=tuple(tool for group in list_field(body, "tools") for tool in _parse_tools(group)),
            max_tokens=parse_token_limit(config, "maxOutputTokens"),
            tool_choice=_parse_choice(object_field(body, "toolConfig")),
            reply_format=_parse_format(config),
            sampling=build_sampling(
                **{ours: config.get(name) for name, ours in SAMPLING.items()}, effort=_parse_effort(config)
            ),
        )

    def response_body(self, reply: Reply, body: Json) -> Json:
        """One candidate with all its parts."""
        return _response(reply, new_id(""), _parts(reply), finished=True)

    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """Responses with one part each; the last one has the finish reason."""
        response_id = new_id("")
        *first, last = _stream_parts(reply)
        for part in first:
            yield "", _response(reply, response_id, [part], finished=False)
        yield "", _response(reply, response_id, [last], finished=True)

    def error_body(self, kind: str, message: str) -> Json:
        """An error in Google's format."""
        code, status = STATUSES.get(kind, (400, "INVALID_ARGUMENT"))
        if kind == "context_length_exceeded":
            message = f"The input token count exceeds the maximum number of tokens allowed: {message}"
        return {"error": {"code": code, "message": message, "status": status}}

    def encode_event(self, event: Event) -> str:
        """Encode one event; in this API events have no names."""
        return f"data: {json.dumps(event[1])}\n\n"


def _parse_system(body: Json) -> Iterator[Message]:
    instruction = object_field(body, "systemInstruction") or object_field(body, "system_instruction")
    text = "\n".join(system_text(part) for part in list_field(instruction, "parts"))
    if text:
        yield Message(role="system", text=text)


def _parse_tools(group: Json) -> Iterator[Tool]:
    for kind, value in group.items():
        if kind != "functionDeclarations" and value is not None:
            raise refuse_hosted_tool(kind)
    for declaration in list_field(group, "functionDeclarations"):
        field = "parametersJsonSchema" if "parametersJsonSchema" in declaration else "parameters"
        tool = parse_tool(declaration, field)
        yield tool.replace(parameters=to_json_schema(tool.parameters) or {"type": "object", "properties": {}})


def _parse_choice(config: Json) -> ToolChoice:
    calling = object_field(config, "functionCallingConfig")
    mode = CHOICE_MODES.get(str(calling.get("mode") or "AUTO"))
    names = calling.get("allowedFunctionNames") or []
    if mode is None or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise MalformedRequest("functionCallingConfig must have a known mode and a list of names.")
    return ToolChoice(mode=mode, names=tuple(names))  # type: ignore[arg-type]


def _parse_format(config: Json) -> ReplyFormat | None:
    kind = config.get("responseMimeType") or "text/plain"
    if kind not in ("application/json", "text/plain"):
        raise UnsupportedRequest(f"The reply format {kind!r} cannot be passed to the model of this run.")
    for field in ("responseJsonSchema", "responseSchema"):
        if config.get(field):
            return parse_json_schema({"schema": to_json_schema(object_field(config, field))})
    return ReplyFormat() if kind == "application/json" else None


def _parse_effort(config: Json) -> str:
    thinking = object_field(config, "thinkingConfig")
    if level := text_field(thinking, "thinkingLevel"):
        return "" if level == "THINKING_LEVEL_UNSPECIFIED" else level.lower()
    budget = integer_field(thinking, "thinkingBudget")
    return "" if budget is None else effort_for_budget(budget)


def _parts(reply: Reply) -> list[Json]:
    parts: list[Json] = []
    if reply.reasoning:
        parts.append({"text": reply.reasoning, "thought": True})
    if reply.text or not reply.calls:
        parts.append({"text": reply.text})
    for call in reply.calls:
        try:
            arguments = parse_object(call.arguments) if call.arguments.strip() else {}
        except UnreadableObject:
            arguments = {"arguments": call.arguments}
        parts.append({"functionCall": {"id": call.id, "name": call.name, "args": arguments}})
    if reply.provider_state:  # programs keep it on calls and texts, and drop thoughts
        signed = next(
            part for part in parts if "functionCall" in part or not (reply.calls or "thought" in part)
        )
        signed["thoughtSignature"] = state_token(reply)
    return parts


def _stream_parts(reply: Reply) -> list[Json]:
    """The parts with long texts split."""
    split: list[Json] = []
    for part in _parts(reply):
        chunks = list(split_for_stream(part.get("text", "")))
        split += [{**part, "text": chunk} for chunk in chunks[:-1]]
        split.append({**part, "text": chunks[-1]} if chunks else part)
    return split


def _response(reply: Reply, response_id: str, parts: list[Json], finished: bool) -> Json:
    candidate: Json = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finished:
        candidate["finishReason"] = FINISH_REASONS[reply.finish]
    usage = {
        "promptTokenCount": reply.input_tokens,
        "candidatesTokenCount": reply.output_tokens,
        "totalTokenCount": reply.input_tokens + reply.output_tokens,
    }
    version = {"modelVersion": reply.model, "responseId": response_id}
    return {"candidates": [candidate], "usageMetadata": usage, **version}
