"""Our prompts as pydantic-ai words them, and its responses as ours."""

from dataclasses import replace
from typing import Any, cast

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from mlagentbench.providers.failures import EmptyResponse, TruncatedResponse
from mlagentbench.providers.retry_policy import RetryPolicy
from mlagentbench.records import Message, Prompt, Reply, ToolCall

MAX_STOP_SEQUENCES = 4  # that every provider takes; the others are cut by us alone
CHARS_PER_TOKEN = 3  # of a token, or more, where a server does not count


def to_messages(prompt: Prompt) -> list[ModelMessage]:
    """The messages; whatever stands between two turns of the model is one request."""
    found: list[ModelMessage] = []
    names: dict[str, str] = {}  # of tools, by the id of a call
    for message in prompt.messages:
        if message.role == "assistant":
            names.update({call.id: call.name for call in message.calls})
            found.append(ModelResponse(parts=_to_response_parts(message)))
            continue
        part = _to_request_part(message, names)
        if found and isinstance(found[-1], ModelRequest):
            found[-1] = ModelRequest(parts=[*found[-1].parts, part])
        else:
            found.append(ModelRequest(parts=[part]))
    return found


def _to_response_parts(message: Message) -> list[ModelResponsePart]:
    calls = [ToolCallPart(call.name, call.arguments, call.id) for call in message.calls]
    return [TextPart(message.text), *calls] if message.text or not calls else [*calls]


def _to_request_part(message: Message, names: dict[str, str]) -> ModelRequestPart:
    if message.role == "system":
        return SystemPromptPart(message.text)
    if message.role == "tool":
        return ToolReturnPart(names.get(message.answers, "unknown"), message.text, message.answers)
    return UserPromptPart(message.text)


def to_request_parameters(prompt: Prompt) -> ModelRequestParameters:
    """The tools that are offered."""
    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
        for tool in prompt.tools
    ]
    return ModelRequestParameters(function_tools=tools)


def to_model_settings(
    prompt: Prompt, model: Model[Any], retry_policy: RetryPolicy, send_stop_sequences: bool
) -> ModelSettings:
    """What the model takes of our wishes; the packages' own retries are off, since ours are counted."""
    wishes: dict[str, Any] = {
        "max_tokens": prompt.max_tokens,
        "timeout": retry_policy.read_timeout_s,
        "request_timeout": retry_policy.attempt_timeout_s,
        "max_retries": 0,
    }
    if (
        sent := [stop for stop in prompt.stop if stop.strip()][:MAX_STOP_SEQUENCES]
        if send_stop_sequences
        else []
    ):
        wishes["stop_sequences"] = sent
    profile = cast(dict[str, Any], model.profile)
    refused = {*model.unsupported_settings, *profile.get("openai_unsupported_model_settings", ())}
    return cast(ModelSettings, {name: wish for name, wish in wishes.items() if name not in refused})


def check_response(response: ModelResponse, prompt: Prompt) -> None:
    """Raise if the answer is none: cut off, or silent where silence was not asked for."""
    told = (response.provider_details or {}).get("finish_reason") or response.finish_reason
    uncounted = not response.usage.output_tokens
    if response.state != "complete" or told is None or (_is_assumed_stop(response) and uncounted):
        raise TruncatedResponse("the answer broke off before its end")
    if response.text or response.tool_calls or response.finish_reason in ("length", "content_filter"):
        return
    if not prompt.stop or uncounted:  # else its first words were a stop sequence
        raise EmptyResponse("the answer is empty")


def _is_assumed_stop(response: ModelResponse) -> bool:
    """Whether it was pydantic-ai, and not the provider, that called this the end."""
    return "finish_reason" not in (response.provider_details or {}) and response.finish_reason == "stop"


def to_reply(response: ModelResponse, prompt: Prompt) -> Reply:
    """The answer, cut where the prompt says, whether or not the provider did so."""
    text = response.text or ""
    for stop in prompt.stop:
        text = text.partition(stop)[0] if stop else text
    calls = (
        ToolCall(id=call.tool_call_id, name=call.tool_name, arguments=raw_arguments(call))
        for call in response.tool_calls
    )
    return Reply(text=text, calls=tuple(calls), model=response.model_name or "")


def count_tokens(response: ModelResponse, prompt: Prompt) -> tuple[int, int]:
    """What went in and what came out; guessed, and rather too high, where the server does not count."""
    heard = sum(len(message.text) for message in prompt.messages)
    said = len(response.text or "") + sum(len(raw_arguments(call)) for call in response.tool_calls)
    used = response.usage
    return (
        used.input_tokens or heard // CHARS_PER_TOKEN + 1,
        used.output_tokens or said // CHARS_PER_TOKEN + 1,
    )


def raw_arguments(call: ToolCallPart) -> str:
    """As the model wrote them, even if that is no JSON."""
    return call.args if isinstance(call.args, str) else call.args_as_json_str()


def estimate_cost(model: Model[Any], input_tokens: int, output_tokens: int) -> float | None:
    """Dollars that so many tokens would cost, or None if that is not known."""
    try:
        address = model.base_url
    except UserError:  # it is chosen call by call
        address = None
    usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    imagined = ModelResponse(parts=[], usage=usage, model_name=model.model_name, provider_name=model.system)
    return response_cost(replace(imagined, provider_url=address))


def response_cost(response: ModelResponse) -> float | None:
    """Dollars by the price list that came with pydantic-ai, or None if it does not know."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None
