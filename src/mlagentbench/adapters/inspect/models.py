"""Inspect's models behind our interface: called from any thread, they run in Inspect's event loop."""

import json
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Literal

from anyio import from_thread
from anyio.lowlevel import current_token
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ResponseSchema,
    get_model,
    model_roles,
)
from inspect_ai.model import Model as InspectModel
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolChoice, ToolFunction, ToolInfo, ToolParams
from inspect_ai.util import JSONSchema, LimitExceededError
from pydantic import TypeAdapter, ValidationError

from mlagentbench.errors import ModelFault, PromptRejected, PromptTooLong, Stopped
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.models.base import Model
from mlagentbench.records import Message, Prompt, Reply, Role, Tool, ToolCall

LimitCallback = Callable[[LimitExceededError], None]
REASONING = TypeAdapter(list[ContentReasoning])  # what an assistant's message keeps as its state


def main_model() -> InspectModel:
    """The model with the role main, or the evaluated model."""
    return get_model(role="main")


def models_by_role(on_limit: LimitCallback) -> dict[Role, Model]:
    """The models of an evaluation by role; a role without a model falls back to main."""
    models: dict[Role, Model] = {"main": InspectModelAdapter(main_model(), on_limit)}
    other_roles: tuple[Role, ...] = ("fast", "edit")
    for role in other_roles:
        if role in model_roles():
            models[role] = InspectModelAdapter(get_model(role=role), on_limit)
    return models


class InspectModelAdapter(Model):
    """One of Inspect's models; `on_limit` is called when it exceeds one of Inspect's limits."""

    price = None

    def __init__(self, model: InspectModel, on_limit: LimitCallback) -> None:
        super().__init__(str(model))
        self._model, self._on_limit, self._loop_token = model, on_limit, current_token()

    def reply(self, prompt: Prompt) -> Reply:
        """Generate a reply in Inspect's event loop, and wait for it."""
        try:
            output = from_thread.run(self._generate, prompt, token=self._loop_token)
        except LimitExceededError as error:
            self._on_limit(error)
            raise Stopped(str(error)) from error
        except CancelledError as error:
            raise Stopped("The sample was cancelled.") from error
        except PromptRejected:
            raise
        except Exception as error:
            raise ModelFault(f"{self.argument}: {type(error).__name__}: {error}") from error
        if output.empty or output.stop_reason == "model_length":
            raise PromptTooLong(output.error or f"The prompt is too long for {self.argument}.")
        return output_to_reply(output)

    async def _generate(self, prompt: Prompt) -> ModelOutput:
        messages = [to_chat_message(message, prompt.messages) for message in prompt.messages]
        tools = [to_tool_info(tool) for tool in prompt.tools]
        config = to_config(prompt, self._model.config.max_tokens)
        return await self._model.generate(messages, tools, to_tool_choice(prompt), config=config)


def to_config(prompt: Prompt, max_tokens: int | None) -> GenerateConfig:
    """Convert the settings of a prompt; `max_tokens` is the limit of the evaluation.

    Raises:
        PromptRejected: Inspect has no JSON without a schema.
    """
    sampling, schema = prompt.sampling, None
    if prompt.reply_format:
        if prompt.reply_format.json_schema is None:
            raise PromptRejected("Inspect cannot hold a model to JSON without a schema.")
        schema = ResponseSchema(
            name=prompt.reply_format.name or "reply",
            json_schema=JSONSchema.model_validate(prompt.reply_format.json_schema),
            strict=prompt.reply_format.strict,
        )
    values = sampling.model_dump(exclude_defaults=True, exclude={"effort"})
    if sampling.effort and sampling.effort != "default":
        values["reasoning_effort"] = sampling.effort
    return GenerateConfig(
        max_tokens=min((limit for limit in (prompt.max_tokens, max_tokens) if limit), default=None),
        stop_seqs=list(prompt.stop) or None,
        parallel_tool_calls=prompt.tool_choice.parallel,
        response_schema=schema,
        **values,
    )


def to_tool_choice(prompt: Prompt) -> ToolChoice | None:
    """Convert the choice of tools.

    Raises:
        PromptRejected: Inspect can require one tool by name, and no other restriction.
    """
    choice = prompt.tool_choice
    if not choice.names:
        modes: dict[str, ToolChoice] = {"required": "any", "none": "none"}
        return modes.get(choice.mode)
    if choice.mode != "required" or len(choice.names) > 1:
        raise PromptRejected("Inspect cannot restrict the choice to some of the tools.")
    return ToolFunction(name=choice.names[0])


def to_tool_info(tool: Tool) -> ToolInfo:
    """Convert a tool to Inspect's description."""
    return ToolInfo(name=tool.name, description=tool.description, parameters=to_tool_params(tool))


def to_tool_params(tool: Tool) -> ToolParams:
    """Convert a tool's JSON schema to Inspect's parameters."""
    return ToolParams.model_validate({**tool.parameters, "additionalProperties": False})


def to_chat_message(message: Message, others: tuple[Message, ...] = ()) -> ChatMessage:
    """Convert a message; the function name of a tool result is looked up in the other messages."""
    if message.role == "system":
        return ChatMessageSystem(content=message.text)
    if message.role == "user":
        return ChatMessageUser(content=message.text)
    if message.role == "assistant":
        calls = [_to_inspect_call(call) for call in message.calls]
        return ChatMessageAssistant(content=_to_content(message), tool_calls=calls or None)
    names = {call.id: call.name for other in others for call in other.calls}
    return ChatMessageTool(
        content=message.text, tool_call_id=message.answers, function=names.get(message.answers)
    )


def _to_content(message: Message) -> str | list[Content]:
    """The text of an assistant, after its reasoning if there is any."""
    if not (message.reasoning or message.provider_state):
        return message.text
    try:
        blocks = REASONING.validate_json(message.provider_state or "[]")
    except ValidationError as error:
        raise PromptRejected("The signature of a reasoning block was changed.") from error
    return [*(blocks or [ContentReasoning(reasoning=message.reasoning)]), ContentText(text=message.text)]


def _to_inspect_call(call: ToolCall) -> InspectCall:
    try:
        return InspectCall(call.id, call.name, parse_object(call.arguments) if call.arguments.strip() else {})
    except UnreadableObject as error:
        return InspectCall(call.id, call.name, {}, parse_error=str(error))


def _readable_reasoning(block: ContentReasoning) -> str:
    return (block.summary or "") if block.redacted else block.reasoning


def output_to_reply(output: ModelOutput) -> Reply:
    """Convert a model's output to a reply with its cost."""
    message, usage = output.message, output.usage
    cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0) if usage else 0
    content = message.content if isinstance(message.content, list) else []
    reasoning = [block for block in content if isinstance(block, ContentReasoning)]
    finishes: dict[str, Literal["length", "filter"]] = {"max_tokens": "length", "content_filter": "filter"}
    return Reply(
        text=message.text,
        reasoning="\n\n".join(map(_readable_reasoning, reasoning)),
        provider_state=REASONING.dump_json(reasoning).decode() if reasoning else "",
        finish=finishes.get(output.stop_reason, "stop"),
        calls=tuple(
            ToolCall(id=call.id, name=call.function, arguments=json.dumps(call.arguments))
            for call in message.tool_calls or ()
        ),
        model=output.model,
        input_tokens=usage.input_tokens + cached if usage else 0,
        output_tokens=usage.output_tokens if usage else 0,
        dollars=usage.total_cost or 0.0 if usage else 0.0,
    )
