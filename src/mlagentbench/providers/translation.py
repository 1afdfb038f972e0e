"""Converts prompts to pydantic-ai messages, and pydantic-ai responses to replies."""

from dataclasses import replace
from typing import Any, Literal, cast

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from mlagentbench.errors import PromptRejected
from mlagentbench.providers.failures import EmptyResponse, TruncatedResponse
from mlagentbench.providers.response_state import collect_state, to_response
from mlagentbench.records import Message, Prompt, Reply, ToolCall

FINISHES = {"length": "length", "content_filter": "filter"}
CHARS_PER_TOKEN = 3  # a low estimate, for servers that do not report usage


def to_messages(prompt: Prompt, model: Model[Any]) -> list[ModelMessage]:
    """Convert the messages; everything between two turns of the model becomes one request.

    Some providers take instructions at the start only, and would move later ones there. These become tagged
    messages of the user, in their place.
    """
    messages: list[ModelMessage] = []
    tool_names: dict[str, str] = {}  # by call id
    takes_later_instructions = model.system == "compatible" or model.profile.get(
        "supports_inline_system_prompts", False
    )
    is_later = False
    for message in prompt.messages:
        if message.role == "assistant":
            is_later = True
            tool_names.update({call.id: call.name for call in message.calls})
            messages.append(to_response(message))
            continue
        part = _to_request_part(message, tool_names)
        if isinstance(part, SystemPromptPart) and is_later and not takes_later_instructions:
            part = UserPromptPart(f"<system>\n{message.text}\n</system>")
        is_later = is_later or message.role != "system"
        if messages and isinstance(messages[-1], ModelRequest):
            messages[-1] = ModelRequest(parts=[*messages[-1].parts, part])
        else:
            messages.append(ModelRequest(parts=[part]))
    return messages


def _to_request_part(message: Message, tool_names: dict[str, str]) -> ModelRequestPart:
    if message.role == "system":
        return SystemPromptPart(message.text)
    if message.role == "tool":
        name = tool_names.get(message.answers, "unknown")
        outcome: Literal["success", "failed"] = "failed" if message.failed else "success"
        return ToolReturnPart(name, message.text, message.answers, outcome=outcome)
    return UserPromptPart(message.text)


def to_request_parameters(prompt: Prompt, model: Model[Any]) -> ModelRequestParameters:
    """Convert the tools that the prompt offers, and the format of the reply.

    Raises:
        PromptRejected: The model cannot be held to that format.
    """
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.parameters,
            strict=tool.strict,
        )
        for tool in prompt.tools
    ]
    reply_format, profile = prompt.reply_format, cast(dict[str, Any], model.profile)
    if reply_format is None:
        return ModelRequestParameters(function_tools=tools)
    if reply_format.json_schema is None:
        if not profile.get("supports_json_object_output"):
            raise PromptRejected(f"{model.model_name} cannot be held to JSON without a schema.")
        return ModelRequestParameters(
            function_tools=tools, output_mode="prompted", prompted_output_template=False
        )
    if not profile.get("supports_json_schema_output"):
        raise PromptRejected(f"{model.model_name} cannot be held to a JSON schema.")
    # Without a value, pydantic-ai changes the schema to suit strict mode. Anthropic has no other mode.
    strict = None if model.system == "anthropic" else bool(reply_format.strict)
    output = OutputObjectDefinition(
        json_schema=reply_format.json_schema,
        name=reply_format.name or None,
        description=reply_format.description or None,
        strict=strict,
    )
    return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=output)


def check_response(response: ModelResponse, prompt: Prompt) -> None:
    """Raise if the response is truncated, or empty without a stop sequence as the reason."""
    finish_reason = (response.provider_details or {}).get("finish_reason") or response.finish_reason
    no_usage = not response.usage.output_tokens
    if response.state != "complete" or finish_reason is None or (_is_assumed_stop(response) and no_usage):
        raise TruncatedResponse("the response is truncated")
    if response.text or response.tool_calls or response.finish_reason in ("length", "content_filter"):
        return
    if not prompt.stop or no_usage:  # otherwise the response started with a stop sequence
        raise EmptyResponse("the response is empty")


def _is_assumed_stop(response: ModelResponse) -> bool:
    """Whether the finish reason was filled in by pydantic-ai rather than reported by the provider."""
    return "finish_reason" not in (response.provider_details or {}) and response.finish_reason == "stop"


def to_reply(response: ModelResponse, prompt: Prompt) -> Reply:
    """Convert a response, cut at the stop sequences whether or not the provider did so."""
    text = response.text or ""
    for stop in prompt.stop:
        text = text.partition(stop)[0] if stop else text
    calls = (
        ToolCall(id=call.tool_call_id, name=call.tool_name, arguments=raw_arguments(call))
        for call in response.tool_calls
    )
    finish: Any = FINISHES.get(response.finish_reason or "", "stop")
    return Reply(
        text=text,
        calls=tuple(calls),
        reasoning=response.thinking or "",
        provider_state=collect_state(response),
        finish=finish,
        model=response.model_name or "",
    )


def count_tokens(response: ModelResponse, prompt: Prompt) -> tuple[int, int]:
    """Input and output tokens; estimated on the high side if the server reports no usage."""
    input_chars = sum(len(message.text) for message in prompt.messages)
    output_chars = len(response.text or "") + sum(len(raw_arguments(call)) for call in response.tool_calls)
    usage = response.usage
    return (
        usage.input_tokens or input_chars // CHARS_PER_TOKEN + 1,
        usage.output_tokens or output_chars // CHARS_PER_TOKEN + 1,
    )


def raw_arguments(call: ToolCallPart) -> str:
    """The arguments as the model wrote them, even if they are not valid JSON."""
    return call.args if isinstance(call.args, str) else call.args_as_json_str()


def estimate_cost(model: Model[Any], input_tokens: int, output_tokens: int) -> float | None:
    """What this many tokens would cost in dollars, or None if unknown."""
    try:
        url = model.base_url
    except UserError:  # the URL is chosen per call
        url = None
    usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    response = ModelResponse(parts=[], usage=usage, model_name=model.model_name, provider_name=model.system)
    return response_cost(replace(response, provider_url=url))


def response_cost(response: ModelResponse) -> float | None:
    """Dollars according to the price list bundled with pydantic-ai, or None if unknown."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None
