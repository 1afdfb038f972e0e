"""Properties of every dialect: nothing of a request or of a reply is lost on its way."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Literal

import pytest
from encoders import Json, encode_chat, encode_google, encode_messages, encode_responses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlagentbench.endpoint.base import Dialect
from mlagentbench.endpoint.routes import CHAT, GOOGLE, MESSAGES, RESPONSES
from mlagentbench.records import Message, Prompt, Reply, ReplyFormat, Sampling, Tool, ToolCall, ToolChoice

EVERY_SETTING = {"temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"}
# What each API can express, beyond what all of them can.
DIALECTS: dict[str, tuple[Dialect, Callable[[Prompt], Json], set[str]]] = {
    "chat": (CHAT, encode_chat, EVERY_SETTING | {"verbosity", "stop", "parallel", "strict", "format_name"}),
    "responses": (
        RESPONSES,
        encode_responses,
        {"temperature", "top_p", "verbosity", "parallel", "strict", "format_name"},
    ),
    "messages": (
        MESSAGES,
        encode_messages,
        {"temperature", "top_p", "top_k", "stop", "parallel", "strict", "failed"},
    ),
    "google": (GOOGLE, encode_google, EVERY_SETTING | {"stop", "several_names"}),
}
every_dialect = pytest.mark.parametrize("name", DIALECTS)
quick = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
texts = st.text('aé"\\{}\n 😀', max_size=12)
words = st.text("ab_1", min_size=1, max_size=5)
objects = st.dictionaries(words, st.one_of(texts, st.integers(), st.booleans(), st.lists(texts)), max_size=3)
states = st.one_of(st.just(""), objects.map(lambda value: json.dumps({"provider": "p", **value})))


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    numbers = count()
    calls = tuple(
        ToolCall(id=f"c{next(numbers)}", name=name, arguments=json.dumps(arguments, ensure_ascii=False))
        for name, arguments in draw(st.lists(st.tuples(words, objects), max_size=3))
    )
    reasoning = draw(texts)
    return Reply(
        text=draw(texts),
        calls=calls,
        reasoning=reasoning,
        provider_state=draw(states) if reasoning else "",
        finish=draw(st.sampled_from(["stop", "length", "filter"])),
        model="fake",
        input_tokens=7,
        output_tokens=3,
    )


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """A system message, then turns of the user and of the model, whose calls are answered."""
    messages = [Message(role="system", text=draw(words)), Message(role="user", text=draw(words))]
    for turn, reply in enumerate(draw(st.lists(replies(), max_size=2))):
        calls = tuple(call.replace(id=f"{turn}{call.id}") for call in reply.calls)
        said = reply.text or ("" if calls else "x")
        messages.append(
            Message(
                role="assistant",
                text=said,
                calls=calls,
                reasoning=reply.reasoning,
                provider_state=reply.provider_state,
            )
        )
        messages += [Message(role="tool", text=draw(texts), answers=call.id) for call in calls]
        messages.append(Message(role="user", text=draw(words)))
    return tuple(messages)


@st.composite
def prompts(draw: st.DrawFn, can: set[str]) -> Prompt:
    """A prompt with what a dialect can express."""

    def maybe(what: str, values: st.SearchStrategy[Any]) -> Any:
        return draw(st.one_of(st.none(), values)) if what in can else None

    strict = maybe("strict", st.booleans())
    schema = {"type": "object", "properties": {draw(words): {"type": "string"}}}
    is_strict = "strict" in can and draw(st.booleans())
    tool = Tool(name=draw(words), description=draw(texts), parameters=schema, strict=is_strict)
    modes: list[Literal["auto", "required", "none"]] = ["auto", "required", "none"]
    mode = draw(st.sampled_from(modes))
    named = mode == "required" or (mode == "auto" and "several_names" in can)
    format_name, about_format = (draw(words) if "format_name" in can else "" for _ in range(2))
    reply_format = ReplyFormat(json_schema=schema, name=format_name, strict=strict, description=about_format)
    messages = draw(conversations())
    if "failed" in can:
        failed = draw(st.booleans())
        messages = tuple(
            message.replace(failed=failed) if message.role == "tool" else message for message in messages
        )
    numbers = st.floats(0, 2, allow_subnormal=False)
    return Prompt(
        messages=messages,
        stop=tuple(draw(st.lists(words, max_size=2))) if "stop" in can else (),
        tools=(tool,),
        max_tokens=draw(st.one_of(st.none(), st.integers(1, 10**6))),
        tool_choice=ToolChoice(
            mode=mode,
            names=(tool.name,) if named and draw(st.booleans()) else (),
            parallel=maybe("parallel", st.booleans()),
        ),
        reply_format=draw(st.one_of(st.none(), st.just(reply_format))),
        sampling=Sampling(
            temperature=maybe("temperature", numbers),
            top_p=maybe("top_p", numbers),
            top_k=maybe("top_k", st.integers(1, 99)),
            seed=maybe("seed", st.integers(0, 99)),
            presence_penalty=maybe("presence_penalty", numbers),
            frequency_penalty=maybe("frequency_penalty", numbers),
            effort=draw(st.sampled_from(["", "low", "high"])),
            verbosity=draw(st.sampled_from(["", "low", "high"])) if "verbosity" in can else "",
        ),
    )


@every_dialect
@quick
@given(data=st.data())
def test_everything_in_a_request_reaches_the_prompt(name: str, data: st.DataObject) -> None:
    dialect, encode, can = DIALECTS[name]
    prompt = data.draw(prompts(can))
    if name in ("messages", "google") and prompt.reply_format:
        prompt = prompt.replace(reply_format=prompt.reply_format.replace(strict=None))
    assert dialect.parse_request(encode(prompt)) == prompt


@every_dialect
def test_arguments_of_a_tool_are_not_strict_unless_the_program_says_so(name: str) -> None:
    dialect, encode, _ = DIALECTS[name]
    prompt = Prompt(
        messages=(Message(role="user", text="x"),), tools=(Tool(name="t", description="", parameters={}),)
    )
    assert dialect.parse_request(encode(prompt)).tools[0].strict is False


@every_dialect
@quick
@given(reply=replies())
def test_a_reply_that_a_program_sends_back_is_the_reply_that_it_got(name: str, reply: Reply) -> None:
    dialect = DIALECTS[name][0]
    body = dialect.response_body(reply, {})
    streamed = [event for _, event in dialect.stream_events(reply, {})]
    expected = Message(
        role="assistant",
        text=reply.text,
        calls=reply.calls,
        reasoning=reply.reasoning,
        provider_state=reply.provider_state,
    )
    for turn in (NEXT_TURN[name](body), NEXT_TURN[name](ASSEMBLE[name](streamed))):
        parsed = dialect.parse_request(turn).messages
        got = parsed[0] if parsed[0].role == "assistant" else Message(role="assistant")
        assert got == expected, turn


def next_chat(body: Json) -> Json:
    return {"messages": [body["choices"][0]["message"], {"role": "user", "content": "go on"}]}


def assemble_chat(events: list[Json]) -> Json:
    message: Json = {"role": "assistant", "content": "", "tool_calls": []}
    for delta in (choice["delta"] for event in events for choice in event["choices"]):
        message["content"] += delta.get("content") or ""
        message["tool_calls"] += delta.get("tool_calls") or []
        message |= {key: value for key, value in delta.items() if key.startswith("reasoning")}
    return {"choices": [{"message": message}]}


def next_responses(body: Json) -> Json:
    return {"input": [*body["output"], {"role": "user", "content": "go on"}]}


def assemble_responses(events: list[Json]) -> Json:
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == items
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "".join(
        part["text"] for item in items if item["type"] == "message" for part in item["content"]
    )
    return {"output": items}


def next_messages(body: Json) -> Json:
    answer = {"role": "assistant", "content": body["content"]}
    return {"messages": [answer, {"role": "user", "content": "go on"}], "max_tokens": 9}


def assemble_messages(events: list[Json]) -> Json:
    blocks: list[Json] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            kind, delta = event["delta"]["type"], event["delta"]
            if kind == "input_json_delta":
                blocks[-1]["input"] = json.loads(delta["partial_json"])
            else:
                field = {"text_delta": "text", "thinking_delta": "thinking"}.get(kind, "signature")
                blocks[-1][field] += delta[field]
    return {"content": blocks}


def next_google(body: Json) -> Json:
    parts = [part for event in as_list(body) for part in event["candidates"][0]["content"]["parts"]]
    return {"contents": [{"role": "model", "parts": parts}, {"role": "user", "parts": [{"text": "go on"}]}]}


def as_list(body: Json) -> Iterator[Json]:
    yield from body.get("events", [body])


NEXT_TURN = {
    "chat": next_chat,
    "responses": next_responses,
    "messages": next_messages,
    "google": next_google,
}
ASSEMBLE: dict[str, Callable[[list[Json]], Json]] = {
    "chat": assemble_chat,
    "responses": assemble_responses,
    "messages": assemble_messages,
    "google": lambda events: {"events": events},
}
CUT = Reply(text="cut of", finish="length", model="fake")
# Where a response and the last but one or last event of a stream say how the reply ended.
ENDINGS: dict[str, tuple[str, Callable[[Json], str], Callable[[list[Json]], str]]] = {
    "chat": (
        "length",
        lambda body: body["choices"][0]["finish_reason"],
        lambda events: events[-1]["choices"][0]["finish_reason"],
    ),
    "responses": (
        "incomplete",
        lambda body: body["status"],
        lambda events: events[-1]["type"].removeprefix("response."),
    ),
    "messages": (
        "max_tokens",
        lambda body: body["stop_reason"],
        lambda events: events[-2]["delta"]["stop_reason"],
    ),
    "google": (
        "MAX_TOKENS",
        lambda body: body["candidates"][0]["finishReason"],
        lambda events: events[-1]["candidates"][0]["finishReason"],
    ),
}


@every_dialect
def test_a_reply_that_was_cut_is_told_as_such(name: str) -> None:
    dialect, (word, of_body, of_events) = DIALECTS[name][0], ENDINGS[name]
    assert of_body(dialect.response_body(CUT, {})) == word
    assert of_events([data for _, data in dialect.stream_events(CUT, {})]) == word
