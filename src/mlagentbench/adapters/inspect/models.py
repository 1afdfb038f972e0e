"""Inspect's models as ours: an agent or an action asks in its thread, and Inspect answers in its loop."""

import json
from collections.abc import Callable
from concurrent.futures import CancelledError

from anyio import from_thread
from anyio.lowlevel import current_token
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    get_model,
    model_roles,
)
from inspect_ai.model import Model as InspectModel
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolInfo, ToolParams
from inspect_ai.util import LimitExceededError

from mlagentbench.errors import ModelFault, PromptTooLong, Stopped
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.models.base import Model
from mlagentbench.records import Message, Prompt, Reply, Role, Tool, ToolCall

LimitCallback = Callable[[LimitExceededError], None]


def main_model() -> InspectModel:
    """The model that thinks: the one with the role main, or the one that is evaluated."""
    return get_model(role="main")


def models_by_role(halt: LimitCallback) -> dict[Role, Model]:
    """The models of an evaluation by what they are for; a role that nobody plays falls to main."""
    found: dict[Role, Model] = {"main": InspectModelAdapter(main_model(), halt)}
    others: tuple[Role, ...] = ("fast", "edit")
    return found | {
        role: InspectModelAdapter(get_model(role=role), halt) for role in others if role in model_roles()
    }


class InspectModelAdapter(Model):
    """One of Inspect's models; `halt` hears of a limit of Inspect's that it ran into."""

    price = None

    def __init__(self, model: InspectModel, halt: LimitCallback) -> None:
        super().__init__(str(model))
        self._model, self._on_limit, self._loop_token = model, halt, current_token()

    def reply(self, prompt: Prompt) -> Reply:
        """What it says."""
        try:
            output = from_thread.run(self._generate, prompt, token=self._loop_token)
        except LimitExceededError as over:
            self._on_limit(over)
            raise Stopped(str(over)) from over
        except CancelledError as error:
            raise Stopped("the sample was cancelled") from error
        except Exception as error:
            raise ModelFault(f"{self.argument}: {type(error).__name__}: {error}") from error
        if output.empty or output.stop_reason == "model_length":
            raise PromptTooLong(output.error or f"{self.argument} takes no prompt of this length")
        return output_to_reply(output)

    async def _generate(self, prompt: Prompt) -> ModelOutput:
        most = min(filter(None, (prompt.max_tokens, self._model.config.max_tokens)))
        config = GenerateConfig(max_tokens=most, stop_seqs=list(prompt.stop) or None)
        said = [to_chat_message(message, prompt.messages) for message in prompt.messages]
        return await self._model.generate(said, [to_tool_info(tool) for tool in prompt.tools], config=config)


def to_tool_info(tool: Tool) -> ToolInfo:
    """A tool as Inspect describes one to a model."""
    return ToolInfo(name=tool.name, description=tool.description, parameters=to_tool_params(tool))


def to_tool_params(tool: Tool) -> ToolParams:
    """Its arguments."""
    return ToolParams.model_validate({**tool.parameters, "additionalProperties": False})


def to_chat_message(message: Message, others: tuple[Message, ...] = ()) -> ChatMessage:
    """A message of ours as one of Inspect's; an answer of a tool says of which, as the message that called for it."""
    if message.role == "system":
        return ChatMessageSystem(content=message.text)
    if message.role == "user":
        return ChatMessageUser(content=message.text)
    if message.role == "assistant":
        calls = [_to_inspect_call(call) for call in message.calls]
        return ChatMessageAssistant(content=message.text, tool_calls=calls or None)
    names = {call.id: call.name for other in others for call in other.calls}
    return ChatMessageTool(
        content=message.text, tool_call_id=message.answers, function=names.get(message.answers)
    )


def _to_inspect_call(call: ToolCall) -> InspectCall:
    try:
        return InspectCall(call.id, call.name, parse_object(call.arguments) if call.arguments.strip() else {})
    except UnreadableObject as error:
        return InspectCall(call.id, call.name, {}, parse_error=str(error))


def output_to_reply(output: ModelOutput) -> Reply:
    """What a model said, and what it cost."""
    said, usage = output.message, output.usage
    cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0) if usage else 0
    return Reply(
        text=said.text,
        calls=tuple(
            ToolCall(id=call.id, name=call.function, arguments=json.dumps(call.arguments))
            for call in said.tool_calls or ()
        ),
        model=output.model,
        input_tokens=usage.input_tokens + cached if usage else 0,
        output_tokens=usage.output_tokens if usage else 0,
        dollars=usage.total_cost or 0.0 if usage else 0.0,
    )
