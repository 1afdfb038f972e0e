"""What a prompt asks for beyond its messages, in the requests that providers get."""

from collections.abc import Callable
from typing import Any

import pytest
from api_formats import Completion
from fake_provider import ErrorReply, FakeProvider

from mlagentbench.errors import PromptRejected
from mlagentbench.models.hosted import Hosted
from mlagentbench.records import Message, Prompt, ReplyFormat, Sampling, Tool, ToolChoice

Create = Callable[..., Hosted]
HELLO = Prompt(messages=(Message(role="user", text="hello"),))
SCHEMA = {
    "type": "object",
    "properties": {"at": {"type": "string"}},
    "required": ["at"],
    "additionalProperties": False,
}
LOOK, GO = (Tool(name=name, description="Do it.", parameters=SCHEMA) for name in ("look", "go"))
every_api = pytest.mark.parametrize("api", ["chat", "responses", "messages"])


def test_sampling_is_sent_and_what_a_model_does_not_have_is_named(
    create: Create, server: FakeProvider
) -> None:
    sampling = Sampling(temperature=0.25, top_p=0.5, top_k=7, seed=3, effort="low", verbosity="low")
    server.script = ["fine"]
    reply = create("chat").reply(HELLO.replace(sampling=sampling))
    body = server.requests[0].body
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.25, 0.5, 3)
    assert "top_k" in reply.not_applied and "effort" in reply.not_applied
    assert not {"top_k", "reasoning_effort"} & body.keys()


@pytest.mark.parametrize("name", ["openai:gpt-5", "openai-chat:gpt-5", "anthropic:claude-opus-5"])
def test_sampling_that_a_reasoning_model_does_not_take_is_named(
    create: Create, server: FakeProvider, name: str
) -> None:
    server.script = ["fine"]
    reply = create(name).reply(HELLO.replace(sampling=Sampling(temperature=0.25, top_p=0.5)))
    assert reply.not_applied == ("temperature", "top_p")
    assert not {"temperature", "top_p"} & server.requests[0].body.keys()


@every_api
def test_a_schema_is_sent_as_it_is(create: Create, server: FakeProvider, api: str) -> None:
    schema = {"type": "object", "properties": {"any": {"type": "object", "properties": {}}}}
    server.script = ["fine"]
    tool = LOOK.replace(parameters=schema, strict=False)
    create(api).reply(HELLO.replace(tools=(tool,), reply_format=ReplyFormat(json_schema=schema)))
    body = server.requests[0].body
    (sent,) = body["tools"]
    assert sent.get("input_schema") or (sent.get("function") or sent)["parameters"] == schema
    if api != "messages":  # Anthropic takes closed schemas only
        sent_format = body["text"]["format"] if api == "responses" else body["response_format"]["json_schema"]
        assert sent_format["schema"] == schema


INSTRUCTED = (
    Message(role="system", text="be brief"),
    *HELLO.messages,
    Message(role="assistant", text="yes"),
    Message(role="system", text="be exact"),
    Message(role="user", text="go on"),
)


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("chat", ["system", "user", "assistant", "system", "user"]),
        ("responses", ["system", "user", "assistant", "system", "user"]),
        ("messages", ["user", "assistant", "user", "system"]),
        ("anthropic:claude-opus-4-6", ["user", "assistant", "user"]),
    ],
)
def test_later_instructions_stay_where_they_are(
    create: Create, server: FakeProvider, name: str, roles: list[str]
) -> None:
    server.script = ["fine"]
    create(name).reply(Prompt(messages=INSTRUCTED))
    body = server.requests[0].body
    sent = body.get("messages") or body["input"]
    assert [message["role"] for message in sent] == roles
    if roles[0] == "user":
        assert body["system"] == "be brief"
    if roles[-1] == "user" and roles[0] == "user":  # it takes none later, so they are tagged
        assert [part["text"] for part in sent[-1]["content"]] == ["<system>\nbe exact\n</system>", "go on"]


@every_api
def test_the_choice_of_tools_is_sent(create: Create, server: FakeProvider, api: str) -> None:
    server.script = [Completion("", calls=(("look", {"at": "x"}),))] * 2
    model = create(api)
    choice = ToolChoice(mode="required", names=("look",), parallel=False)
    model.reply(HELLO.replace(tools=(LOOK, GO), tool_choice=choice))
    model.reply(HELLO.replace(tools=(LOOK, GO), tool_choice=ToolChoice(mode="none")))
    forced, forbidden = (request.body for request in server.requests)
    expected: dict[str, Any] = {
        "chat": {"type": "function", "function": {"name": "look"}},
        "responses": {"type": "function", "name": "look"},
        "messages": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
    }
    assert forced["tool_choice"] == expected[api]
    assert forced.get("parallel_tool_calls") is (None if api == "messages" else False)
    sent = forbidden.get("tool_choice")
    assert sent in ("none", {"type": "none"}) or not forbidden.get("tools")


@every_api
def test_a_json_schema_is_sent(create: Create, server: FakeProvider, api: str) -> None:
    server.script = ['{"at": "x"}']
    reply_format = ReplyFormat(json_schema=SCHEMA, name="place", strict=True)
    assert create(api).reply(HELLO.replace(reply_format=reply_format)).text == '{"at": "x"}'
    body = server.requests[0].body
    sent: dict[str, Callable[[], Any]] = {
        "chat": lambda: body["response_format"]["json_schema"]["schema"],
        "responses": lambda: body["text"]["format"]["schema"],
        "messages": lambda: (body.get("output_config") or {}).get("format", body.get("output_format"))[
            "schema"
        ],
    }
    assert sent[api]()["properties"]["at"]["type"] == "string"


def test_json_without_a_schema_is_sent_or_rejected(create: Create, server: FakeProvider) -> None:
    server.script = ["{}"]
    create("chat").reply(HELLO.replace(reply_format=ReplyFormat()))
    assert server.requests[0].body["response_format"] == {"type": "json_object"}
    with pytest.raises(PromptRejected, match="cannot be held to JSON without a schema"):
        create("messages").reply(HELLO.replace(reply_format=ReplyFormat()))
    assert len(server.requests) == 1


@pytest.mark.parametrize(("api", "where"), [("messages", "signature"), ("responses", "encrypted_content")])
def test_reasoning_goes_back_to_its_provider_with_its_signature(
    create: Create, server: FakeProvider, api: str, where: str
) -> None:
    server.script = [Completion("I look.", calls=(("look", {"at": "x"}),), reasoning="hm"), "seen"]
    model = create("openai:gpt-5" if api == "responses" else api)
    asked = HELLO.replace(tools=(LOOK,))
    first = model.reply(asked)
    assert first.reasoning == "hm" and "signed hm" in first.provider_state
    turn = Message(
        role="assistant",
        text=first.text,
        calls=first.calls,
        reasoning=first.reasoning,
        provider_state=first.provider_state,
    )
    answer = Message(role="tool", text="saw x", answers=first.calls[0].id, failed=True)
    model.reply(asked.replace(messages=(*asked.messages, turn, answer)))
    sent = str(server.requests[1].body)
    assert f"'{where}': 'signed hm'" in sent and "saw x" in sent
    if api == "messages":
        assert "'is_error': True" in sent


def test_a_changed_signature_is_rejected_before_anything_is_sent(
    create: Create, server: FakeProvider
) -> None:
    turn = Message(role="assistant", text="x", provider_state="{}")
    with pytest.raises(PromptRejected, match="was changed"):
        create().reply(HELLO.replace(messages=(*HELLO.messages, turn, *HELLO.messages)))
    assert not server.requests


@every_api
def test_without_a_limit_the_reply_is_as_long_as_the_model_can_write(
    create: Create, server: FakeProvider, api: str
) -> None:
    server.script = ["fine"]
    create(api).reply(HELLO.replace(max_tokens=None))
    limits = [value for name, value in server.requests[0].body.items() if name.startswith("max_")]
    assert not limits if api != "messages" else limits[0] > 32_000  # Anthropic wants a number


@every_api
def test_a_reply_that_was_cut_says_so(create: Create, server: FakeProvider, api: str) -> None:
    server.script = ["word " * 50]
    assert create(api).reply(HELLO.replace(max_tokens=10)).finish == "length"


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("max_tokens is too large: 64000. This model supports at most 16384 completion tokens.", 16384),
        ("max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for m", 8192),
        (
            "'max_tokens' is too large: 64000. This model's maximum context length is 32768 tokens and your "
            "request has 768 input tokens (64000 > 32768 - 768).",
            32000,
        ),
    ],
)
def test_a_limit_above_that_of_the_model_is_lowered(
    create: Create, server: FakeProvider, message: str, limit: int
) -> None:
    server.script = [ErrorReply(400, message), "fine"]
    reply = create().reply(HELLO.replace(max_tokens=64000))
    assert (reply.text, reply.not_applied) == ("fine", ("max_tokens",))
    sent = [request.body.get("max_completion_tokens") for request in server.requests]
    assert sent == [64000, limit]


def test_a_request_that_the_provider_rejects_can_be_asked_differently(
    create: Create, server: FakeProvider
) -> None:
    rejection = ErrorReply(400, "Invalid schema for function 'look'")
    server.script = [rejection, "OK", rejection, "fine"]
    model = create()
    with pytest.raises(PromptRejected, match="Invalid schema"):
        model.reply(HELLO.replace(tools=(LOOK,)))
    assert model.reply(HELLO).text == "fine"
