"""What models were asked and what they said, without repeating what the question before already had."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlagentbench.records import Message, ModelCall, Reply, Role
from mlagentbench.reports.viewer.pieces import Piece, cut, level, weight

MESSAGES = 12  # shown of one question


@dataclass(frozen=True)
class Asked:
    """One question to a model."""

    number: int
    step: int
    model: str
    purpose: str
    repeated: int  # messages that are those of the question before
    messages: tuple[tuple[str, Piece], ...]
    hidden: int  # messages in between that are not shown
    reply: Piece
    problem: str
    input_tokens: int
    output_tokens: int
    dollars: float
    retries: int
    seconds: float


@dataclass(frozen=True)
class _Question:
    call: ModelCall
    repeated: int
    hidden: int
    messages: Sequence[Message]


def asked(calls: Iterable[ModelCall], after: int, budget: float) -> list[Asked]:
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
        questions.append(_Question(call, repeated, max(len(fresh) - MESSAGES, 0), fresh[-MESSAGES:]))
    texts = [_said(message) for one in questions for message in one.messages]
    texts += [_said(one.call.reply) for one in questions if one.call.reply]
    cap = level(map(weight, texts), budget)
    return [_asked(one, cap) for one in questions]


def _asked(one: _Question, cap: float) -> Asked:
    call, reply = one.call, one.call.reply or Reply()
    return Asked(
        number=call.number,
        step=call.step,
        model=call.model,
        purpose=f"{call.role}, inside the action" if call.inside else call.role,
        repeated=one.repeated,
        messages=tuple((each.role, cut(_said(each), cap)) for each in one.messages),
        hidden=one.hidden,
        reply=cut(_said(reply), cap),
        problem=call.too_long,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        dollars=reply.dollars,
        retries=reply.retries,
        seconds=call.seconds,
    )


def _said(message: Message | Reply) -> str:
    """Text, and the tools asked for."""
    return "\n".join(filter(None, (message.text, *(f"→ {call.name} {call.arguments}" for call in message.calls))))
