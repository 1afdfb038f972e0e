"""The OpenAI chat completions API."""

import json
import time
from collections.abc import Iterator

from mlagentbench.endpoint.base import (
    Dialect,
    Event,
    Json,
    MalformedRequest,
    UnsupportedRequest,
    ask_last_instruction,
    new_id,
    require_question,
    split_for_stream,
)
from mlagentbench.endpoint.custom_tools import parse_custom_tool, unwrap_input, wrap_input
from mlagentbench.endpoint.fields import (
    build_sampling,
    content_text,
    flag_field,
    list_field,
    object_field,
    parse_json_schema,
    parse_stop_sequences,
    parse_token_limit,
    parse_tool,
    refuse_hosted_tool,
    refuse_unknown_fields,
    required_name,
    text_field,
)
from mlagentbench.endpoint.reasoning import parse_state_token, state_token
from mlagentbench.records import Message, Prompt, Reply, ReplyFormat, Tool, ToolCall, ToolChoice

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
SAMPLING = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
CARRIED = {
    *SAMPLING,
    *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stop", "max_completion_tokens"),
    *("max_tokens", "response_format", "reasoning_effort", "verbosity", "stream", "stream_options"),
}
NEUTRAL = {
    *("user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention"),
    *("safety_identifier", "litellm_session_id", "cache_control"),
}
FINISH_REASONS = {"length": "length", "filter": "content_filter"}


class Chat(Dialect):
    """POST /v1/chat/completions."""

    stream_end = "data: [DONE]\n\n"

    def parse_request(self, body: Json) -> Prompt:
        """Parse messages with their tool calls, tools and settings."""
        if body.get("n") == 1:
            body = {name: value for name, value in body.items() if name != "n"}
        refuse_unknown_fields(body, CARRIED, NEUTRAL)
        messages = ask_last_instruction([_parse_message(item) for item in list_field(body, "messages")])
        require_question(messages, "messages")
        # Used only when the reply is written, when it would be too late to reject the request.
        object_field(body, "stream_options")
        return Prompt(
            messages=messages,
            stop=parse_stop_sequences(body.get("stop")),
            tools=tuple(_parse_tool(tool) for tool in list_field(body, "tools")),
            max_tokens=parse_token_limit(body, "max_completion_tokens", "max_tokens"),
            tool_choice=_parse_choice(body),
            reply_format=parse_format(object_field(body, "response_format"), "json_schema"),
            sampling=build_sampling(
                **{name: body.get(name) for name in SAMPLING},
                effort=text_field(body, "reasoning_effort"),
                verbosity=text_field(body, "verbosity"),
            ),
        )

    def response_body(self, reply: Reply, body: Json) -> Json:
        """A completion with one choice."""
        custom_names = _custom_names(body)
        message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
        message |= _reasoning_fields(reply)
        if reply.calls:
            message["tool_calls"] = [_format_call(call, custom_names) for call in reply.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(reply)}
        return {**_envelope(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def stream_events(self, reply: Reply, body: Json) -> Iterator[Event]:
        """Chunks with the role, the text, the calls, the finish reason, and the usage if requested."""
        envelope, custom_names = _envelope(reply, "chat.completion.chunk"), _custom_names(body)

        def build_chunk(delta: Json, finish_reason: str | None = None) -> Event:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
            return "", {**envelope, "choices": [choice]}

        yield build_chunk({"role": "assistant", "content": "", **_reasoning_fields(reply)})
        yield from (build_chunk({"content": text}) for text in split_for_stream(reply.text))
        for index, call in enumerate(reply.calls):
            yield build_chunk({"tool_calls": [{"index": index, **_format_call(call, custom_names)}]})
        yield build_chunk({}, _finish_reason(reply))
        if object_field(body, "stream_options").get("include_usage"):
            yield "", {**envelope, "choices": [], "usage": _usage(reply)}

    def error_body(self, kind: str, message: str) -> Json:
        """An error in OpenAI's format."""
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": kind}}

    def encode_event(self, event: Event) -> str:
        """Encode one event; in this API events have no names."""
        return f"data: {json.dumps(event[1])}\n\n"


def _parse_message(message: Json) -> Message:
    role = ROLES.get(str(message.get("role")))
    if role is None:
        raise MalformedRequest(f"Unknown role: {message.get('role')!r}.")
    for field in ("function_call", "audio"):  # the form of calls before tools, and speech
        if message.get(field):
            raise UnsupportedRequest(f"{field} of a message cannot be passed to the model of this run.")
    details, text = list_field(message, "reasoning_details"), content_text(message.get("content"))
    # Who of several participants speaks. Results of tools have the name of the tool, which their call has.
    if role == "user" and (name := text_field(message, "name")):
        text = f"{name}: {text}"
    return Message(
        role=role,  # type: ignore[arg-type]
        text=text,
        calls=tuple(_parse_call(call) for call in list_field(message, "tool_calls")),
        answers=text_field(message, "tool_call_id"),
        reasoning=text_field(message, "reasoning_content"),
        provider_state=next((parse_state_token(part["data"]) for part in details if part.get("data")), ""),
    )


def _parse_call(call: Json) -> ToolCall:
    call_id, custom = text_field(call, "id"), object_field(call, "custom")
    if custom:
        arguments = wrap_input(text_field(custom, "input"))
        return ToolCall(id=call_id, name=text_field(custom, "name"), arguments=arguments)
    function = object_field(call, "function")
    return ToolCall(
        id=call_id, name=text_field(function, "name"), arguments=text_field(function, "arguments")
    )


def _parse_tool(tool: Json) -> Tool:
    kind = tool.get("type", "function")
    if kind == "custom":
        custom = object_field(tool, "custom")
        grammar = object_field(custom, "format").get("grammar")  # nested, unlike in the responses API
        return parse_custom_tool({**custom, "format": grammar} if grammar else custom)
    if kind != "function":
        raise refuse_hosted_tool(str(kind))
    return parse_tool(object_field(tool, "function"), "parameters")


def _parse_choice(body: Json) -> ToolChoice:
    choice, parallel = body.get("tool_choice"), flag_field(body, "parallel_tool_calls")
    if isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
        name = required_name(object_field(choice, choice["type"]))
        return ToolChoice(mode="required", names=(name,), parallel=parallel)
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = object_field(choice, "allowed_tools")
        tools = list_field(allowed, "tools")
        names = tuple(required_name(object_field(tool, str(tool.get("type")))) for tool in tools)
        return parse_choice_mode(allowed.get("mode"), names, parallel)
    return parse_choice_mode(choice, (), parallel)


def parse_choice_mode(mode: object, names: tuple[str, ...], parallel: bool | None) -> ToolChoice:
    """A choice given as one of OpenAI's words."""
    if mode not in (None, "auto", "required", "none"):
        raise UnsupportedRequest(f"tool_choice cannot be {mode!r}.")
    return ToolChoice(mode=mode or "auto", names=names, parallel=parallel)


def parse_format(definition: Json, nested: str = "") -> ReplyFormat | None:
    """The format of the reply; its schema may be in a nested object."""
    kind = definition.get("type", "text")
    if kind == "json_object":
        return ReplyFormat()
    if kind == "json_schema":
        return parse_json_schema(object_field(definition, nested) if nested else definition)
    if kind != "text":
        raise UnsupportedRequest(f"The reply format {kind!r} cannot be passed to the model of this run.")
    return None


def _custom_names(body: Json) -> set[str]:
    custom = (object_field(tool, "custom") for tool in list_field(body, "tools"))
    return {required_name(tool) for tool in custom if tool}


def _format_call(call: ToolCall, custom_names: set[str]) -> Json:
    if call.name in custom_names:
        custom = {"name": call.name, "input": unwrap_input(call.arguments)}
        return {"id": call.id, "type": "custom", "custom": custom}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _reasoning_fields(reply: Reply) -> Json:
    """The fields that compatible servers use: this API itself shows no reasoning."""
    fields: Json = {"reasoning_content": reply.reasoning} if reply.reasoning else {}
    if reply.provider_state:
        data = state_token(reply)
        fields["reasoning_details"] = [{"type": "reasoning.encrypted", "data": data, "index": 0}]
    return fields


def _finish_reason(reply: Reply) -> str:
    return FINISH_REASONS.get(reply.finish) or ("tool_calls" if reply.calls else "stop")


def _envelope(reply: Reply, kind: str) -> Json:
    return {"id": new_id("chatcmpl-"), "object": kind, "created": int(time.time()), "model": reply.model}


def _usage(reply: Reply) -> Json:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
