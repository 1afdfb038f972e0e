"""What models were asked and what they said, without repeating what the question before already had."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlagentbench.pages.viewer.excerpts import Excerpt, make_excerpt, rendered_size, size_cap
from mlagentbench.records import Message, ModelCall, Reply, Role

MAX_MESSAGES_SHOWN = 12  # shown of one question


@dataclass(frozen=True)
class ModelCallView:
    """One question to a model."""

    number: int
    step: int
    model: str
    purpose: str
    repeated_messages: int  # messages that are those of the question before
    messages: tuple[tuple[str, Excerpt], ...]
    hidden_messages: int  # messages in between that are not shown
    reply: Excerpt
    error: str
    input_tokens: int
    output_tokens: int
    dollars: float
    retries: int
    seconds: float


@dataclass(frozen=True)
class _NewMessages:
    call: ModelCall
    repeated_messages: int
    hidden_messages: int
    messages: Sequence[Message]


def view_model_calls(calls: Iterable[ModelCall], after: int, budget: float) -> list[ModelCallView]:
    """The calls of all steps after one, within a budget of bytes for all of them."""
    before: dict[Role, set[Message]] = {}
    questions = []
    for call in calls:
        messages, known = call.prompt.messages, before.get(call.role, set())
        before[call.role] = set(messages)
        if call.step <= after:
            continue
        fresh = [message for message in messages if message not in known] or messages[-1:]
        repeated = len(messages) - len(fresh)
        questions.append(
            _NewMessages(call, repeated, max(len(fresh) - MAX_MESSAGES_SHOWN, 0), fresh[-MAX_MESSAGES_SHOWN:])
        )
    texts = [_message_text(message) for one in questions for message in one.messages]
    texts += [_message_text(one.call.reply) for one in questions if one.call.reply]
    cap = size_cap(map(rendered_size, texts), budget)
    return [_view_model_call(one, cap) for one in questions]


def _view_model_call(one: _NewMessages, cap: float) -> ModelCallView:
    call, reply = one.call, one.call.reply or Reply()
    return ModelCallView(
        number=call.number,
        step=call.step,
        model=call.model,
        purpose=f"{call.role}, inside the action" if call.inside else call.role,
        repeated_messages=one.repeated_messages,
        messages=tuple((each.role, make_excerpt(_message_text(each), cap)) for each in one.messages),
        hidden_messages=one.hidden_messages,
        reply=make_excerpt(_message_text(reply), cap),
        error=call.too_long,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        dollars=reply.dollars,
        retries=reply.retries,
        seconds=call.seconds,
    )


def _message_text(message: Message | Reply) -> str:
    """Text, and the tools asked for."""
    return "\n".join(
        filter(None, (message.text, *(f"→ {call.name} {call.arguments}" for call in message.calls)))
    )
