"""Model calls as the page shows them, without the messages that the previous call already contained."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlagentbench.pages.viewer.excerpts import Excerpt, make_excerpt, rendered_size, size_cap
from mlagentbench.records import Message, ModelCall, Reply, Role

MAX_MESSAGES_SHOWN = 12  # of one call


@dataclass(frozen=True)
class ModelCallView:
    """One model call."""

    number: int
    step: int
    model: str
    purpose: str
    repeated_messages: int  # messages that the previous call contained
    messages: tuple[tuple[str, Excerpt], ...]  # role and text
    hidden_messages: int  # new messages that are not shown
    reply: Excerpt
    error: str
    input_tokens: int
    output_tokens: int
    dollars: float
    retries: int
    seconds: float


@dataclass(frozen=True)
class _CallWithNewMessages:
    call: ModelCall
    repeated_messages: int
    hidden_messages: int
    messages: Sequence[Message]


def view_model_calls(calls: Iterable[ModelCall], after: int, budget: float) -> list[ModelCallView]:
    """The calls of all steps after `after`, within a budget of bytes for all of them."""
    previous: dict[Role, set[Message]] = {}
    shown = []
    for call in calls:
        messages, known = call.prompt.messages, previous.get(call.role, set())
        previous[call.role] = set(messages)
        if call.step <= after:
            continue
        new = [message for message in messages if message not in known] or messages[-1:]
        repeated, hidden = len(messages) - len(new), max(len(new) - MAX_MESSAGES_SHOWN, 0)
        shown.append(_CallWithNewMessages(call, repeated, hidden, new[-MAX_MESSAGES_SHOWN:]))
    texts = [_message_text(message) for entry in shown for message in entry.messages]
    texts += [_message_text(entry.call.reply) for entry in shown if entry.call.reply]
    cap = size_cap(map(rendered_size, texts), budget)
    return [_view_model_call(entry, cap) for entry in shown]


def _view_model_call(entry: _CallWithNewMessages, cap: float) -> ModelCallView:
    call, reply = entry.call, entry.call.reply or Reply()
    return ModelCallView(
        number=call.number,
        step=call.step,
        model=call.model,
        purpose=f"{call.role}, inside the action" if call.inside else call.role,
        repeated_messages=entry.repeated_messages,
        messages=tuple(
            (message.role, make_excerpt(_message_text(message), cap)) for message in entry.messages
        ),
        hidden_messages=entry.hidden_messages,
        reply=make_excerpt(_message_text(reply), cap),
        error=call.too_long,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        dollars=reply.dollars,
        retries=reply.retries,
        seconds=call.seconds,
    )


def _message_text(message: Message | Reply) -> str:
    """The text of a message and its tool calls."""
    tool_calls = (f"→ {call.name} {call.arguments}" for call in message.calls)
    return "\n".join(filter(None, (message.text, *tool_calls)))
