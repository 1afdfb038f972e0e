"""The endpoint, asked by the clients that outside programs really use."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from mlagentbench.endpoint.server import MAX_CONNECTIONS, Endpoint, ModelRequest, RequestRefused
from mlagentbench.records import Message, Prompt, Reply, ToolCall

TOOL = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
LONG = "many words, " * 1000
SAYS = {
    "text": Reply(text="hello", model="parrot", input_tokens=7, output_tokens=3),
    "a long text": Reply(text=LONG, model="parrot", input_tokens=7, output_tokens=3),
    "a call": Reply(calls=(ToolCall(id="c1", name="read", arguments='{"path": "a"}'),), model="parrot"),
    "text and calls": Reply(
        text="both",
        calls=tuple(
            ToolCall(id=f"c{n}", name="read", arguments=json.dumps({"path": "x" * n})) for n in (1, 3000)
        ),
        model="parrot",
    ),
    "nothing": Reply(model="parrot"),
}


class Asked:
    """An endpoint whose questions are answered by a thread of ours."""

    def __init__(self) -> None:
        self.endpoint = Endpoint(None)
        self.prompts: list[Prompt] = []
        self.answer: Callable[[ModelRequest], None] = lambda question: question.answer(SAYS["text"])
        threading.Thread(target=self._attend, daemon=True).start()

    def _attend(self) -> None:
        while True:
            question = self.endpoint.requests.get()
            self.prompts.append(question.prompt)
            self.answer(question)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.endpoint.port}"


@pytest.fixture
def asked() -> Iterator[Asked]:
    found = Asked()
    yield found
    found.endpoint.close()


@pytest.fixture
def gpt(asked: Asked) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{asked.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(asked: Asked) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=asked.url, api_key="none", max_retries=0) as client:
        yield client


def meant(name: str) -> tuple[str, list[tuple[str, str, Any]]]:
    reply = SAYS[name]
    return reply.text, [(call.id, call.name, json.loads(call.arguments)) for call in reply.calls]


@pytest.mark.parametrize("name", SAYS)
@pytest.mark.parametrize("stream", [False, True])
def test_chat_completions_are_understood_by_openais_client(
    asked: Asked, gpt: Any, name: str, stream: bool
) -> None:
    asked.answer = lambda question: question.answer(SAYS[name])
    tools = [{"type": "function", "function": {"name": "read", "description": "reads", "parameters": TOOL}}]
    given = {"model": "gpt", "messages": [{"role": "user", "content": "hi"}], "tools": tools, "max_tokens": 9}
    if not stream:
        message = gpt.chat.completions.create(**given).choices[0].message
        text, calls = message.content or "", message.tool_calls or []
        found = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in calls]
    else:
        chunks = list(
            gpt.chat.completions.create(**given, stream=True, stream_options={"include_usage": True})
        )
        assert chunks[-1].usage.prompt_tokens == SAYS[name].input_tokens
        deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
        text = "".join(delta.content or "" for delta in deltas)
        parts = [call for delta in deltas for call in delta.tool_calls or []]
        found = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in parts]
    assert (text, found) == meant(name)
    assert asked.prompts[0].max_tokens == 9 and asked.prompts[0].tools[0].parameters == TOOL


@pytest.mark.parametrize("name", SAYS)
@pytest.mark.parametrize("stream", [False, True])
def test_responses_are_understood_by_openais_client(asked: Asked, gpt: Any, name: str, stream: bool) -> None:
    asked.answer = lambda question: question.answer(SAYS[name])
    tools = [
        {"type": "function", "name": "read", "description": "reads", "parameters": TOOL, "strict": False}
    ]
    given = {"model": "gpt", "input": "hi", "instructions": "be kind", "tools": tools}
    if stream:
        with gpt.responses.stream(**given) as events:
            kinds = [event.type for event in events]
            response = events.get_final_response()
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    else:
        response = gpt.responses.create(**given)
    calls = [item for item in response.output if item.type == "function_call"]
    found = [(call.call_id, call.name, json.loads(call.arguments)) for call in calls]
    assert (response.output_text, found) == meant(name)
    assert [message.role for message in asked.prompts[0].messages] == ["system", "user"]


@pytest.mark.parametrize("name", SAYS)
@pytest.mark.parametrize("stream", [False, True])
def test_messages_are_understood_by_anthropics_client(
    asked: Asked, claude: Any, name: str, stream: bool
) -> None:
    asked.answer = lambda question: question.answer(SAYS[name])
    tools = [{"name": "read", "description": "reads", "input_schema": TOOL}]
    talk = [{"role": "user", "content": "hi"}]
    given = {"model": "claude", "max_tokens": 9, "system": "be kind", "messages": talk, "tools": tools}
    if stream:
        with claude.messages.stream(**given) as events:
            message = events.get_final_message()
    else:
        message = claude.messages.create(**given)
    text = "".join(block.text for block in message.content if block.type == "text")
    found = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
    assert (text, found) == meant(name)
    assert message.stop_reason == ("tool_use" if found else "end_turn")
    assert asked.prompts[0].messages[0] == Message(role="system", text="be kind")


CALL = ToolCall(id="c1", name="read", arguments='{"path": "a"}')
TALK = (
    Message(role="system", text="be kind"),
    Message(role="user", text="read a"),
    Message(role="assistant", text="so I do", calls=(CALL,)),
    Message(role="tool", text="content of a", answers="c1"),
    Message(role="user", text="and now?"),
)


def test_a_whole_talk_with_tools_is_read_alike_in_every_dialect(asked: Asked, gpt: Any, claude: Any) -> None:
    function = {"name": "read", "arguments": '{"path": "a"}'}
    gpt.chat.completions.create(
        model="m",
        messages=[
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "read a"}]},
            {
                "role": "assistant",
                "content": "so I do",
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "content of a"},
            {"role": "user", "content": "and now?"},
        ],
        stop=["END"],
    )
    gpt.responses.create(
        model="m",
        instructions="be kind",
        input=[
            {"role": "user", "content": "read a"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "so I do", "annotations": []}],
            },
            {"type": "function_call", "call_id": "c1", **function},
            {"type": "function_call_output", "call_id": "c1", "output": "content of a"},
            {"role": "user", "content": [{"type": "input_text", "text": "and now?"}]},
        ],
    )
    use = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "text", "text": "content of a"}],
    }
    claude.messages.create(
        model="m",
        max_tokens=5,
        system=[{"type": "text", "text": "be kind"}],
        messages=[
            {"role": "user", "content": "read a"},
            {"role": "assistant", "content": [{"type": "text", "text": "so I do"}, use]},
            {"role": "user", "content": [result, {"type": "text", "text": "and now?"}]},
        ],
        stop_sequences=["END"],
    )
    assert [prompt.messages for prompt in asked.prompts] == [TALK] * 3
    assert [prompt.stop for prompt in asked.prompts] == [("END",), (), ("END",)]


@pytest.mark.parametrize(
    ("kind", "gpts", "claudes"),
    [
        ("context_length_exceeded", openai.BadRequestError, anthropic.BadRequestError),
        ("budget", openai.PermissionDeniedError, anthropic.PermissionDeniedError),
        ("model", openai.InternalServerError, anthropic.InternalServerError),
    ],
)
def test_a_refusal_is_an_error_that_clients_know(
    asked: Asked, gpt: Any, claude: Any, kind: str, gpts: type[Exception], claudes: type[Exception]
) -> None:
    asked.answer = lambda question: question.refuse(kind, "because")
    talk = [{"role": "user", "content": "hi"}]
    with pytest.raises(gpts, match="because"):
        gpt.chat.completions.create(model="m", messages=talk)
    with pytest.raises(gpts, match="because"):
        gpt.responses.create(model="m", input="hi", stream=True)
    with pytest.raises(
        claudes, match="prompt is too long: because" if kind.startswith("context") else "because"
    ):
        claude.messages.create(model="m", max_tokens=5, messages=talk)


BAD = {
    "no JSON": b"{",
    "no object": b"[]",
    "no messages": b"{}",
    "messages that are none": b'{"messages": [1]}',
    "an unknown role": b'{"messages": [{"role": "king", "content": "x"}]}',
    "a content that is none": b'{"messages": [{"role": "user", "content": 5}], "input": 5}',
    "a tool without a name": b'{"messages": [{"role": "user"}], "input": "x", "tools": [{"type": "function"}]}',
    "a list": b'[{"messages": [{"role": "user"}]}]',
    "deep": b"[" * 100_000,
    "deep within": b'{"messages": [{"role": "user"}], "input": "x", "a": ' + b"[" * 300 + b"]" * 300 + b"}",
    "numbers that are none": b'{"messages": [{"role": "user"}], "input": "x", "temperature": NaN}',
}
MISFITS: dict[str, dict[str, Any]] = {
    "stop sequences that are none": {"stop": 5},
    "a stop sequence that is none": {"stop": ["a", {}]},
    "options that are none": {"stream": True, "stream_options": "yes"},
    "a function that is none": {"tools": [{"function": "read"}]},
    "parameters that are none": {"tools": [{"function": {"name": "read", "parameters": ["path"]}}]},
    "a call that is none": {"messages": [{"role": "assistant", "tool_calls": [{"function": "read"}]}]},
}


@pytest.mark.parametrize("more", MISFITS.values(), ids=MISFITS.keys())
def test_a_part_that_does_not_fit_is_refused_with_a_sentence(asked: Asked, more: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], **more}
    code, answer = request(asked, "POST", "/v1/chat/completions", json.dumps(body).encode())
    assert code == 400 and " must be " in answer["error"]["message"]
    assert not asked.prompts


def test_half_a_character_does_not_spoil_the_rest(asked: Asked) -> None:
    said = rb'{"messages": [{"role": "user", "content": "cut \\ud800 off \ud83d\ude00 \ud83d"}], "stop": ["\udc00"]}'
    assert request(asked, "POST", "/v1/chat/completions", said)[0] == 200
    assert asked.prompts[0].messages[0].text == "cut \\ud800 off 😀 �"
    assert Prompt.model_validate_json(asked.prompts[0].model_dump_json()) == asked.prompts[0]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_a_malformed_question_is_refused_with_a_sentence(asked: Asked, path: str, body: bytes) -> None:
    assert request(asked, "POST", path, body)[0] == 400
    assert not asked.prompts


def request(asked: Asked, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", asked.endpoint.port, timeout=20)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_models_are_listed_tokens_counted_and_other_paths_unknown(
    asked: Asked, gpt: Any, claude: Any
) -> None:
    assert [model.id for model in gpt.models.list()] == ["model"]
    talk = [{"role": "user", "content": "x" * 400}]
    assert claude.messages.count_tokens(model="m", messages=talk).input_tokens == 101
    assert request(asked, "GET", "/v1/files")[0] == 404
    assert request(asked, "POST", "/v1/embeddings", b"{}")[0] == 404


@pytest.mark.parametrize("digits", [11, 5000])
def test_a_question_of_absurd_size_is_refused_before_it_is_read(asked: Asked, digits: int) -> None:
    with socket.create_connection(("127.0.0.1", asked.endpoint.port), timeout=20) as raw:
        raw.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n" % (b"9" * digits))
        assert b"413" in raw.recv(100)


def test_of_many_questions_at_once_one_is_held_at_a_time(asked: Asked) -> None:
    held: list[int] = []

    def answer(question: ModelRequest) -> None:
        held.append(len(asked.endpoint._pending))
        question.answer(SAYS["text"])

    asked.answer = answer
    body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: request(asked, "POST", "/v1/chat/completions", body)[0], range(24)))
    assert found == [200] * 24 and held == [1] * 24


def test_the_connections_of_one_program_are_not_those_of_another(asked: Asked) -> None:
    other = Asked()
    busy = [
        http.client.HTTPConnection("127.0.0.1", asked.endpoint.port, timeout=20)
        for _ in range(MAX_CONNECTIONS)
    ]
    try:
        for each in busy:
            each.request("GET", "/v1/models")
            assert each.getresponse().read()
        assert request(other, "GET", "/v1/models")[0] == 200
    finally:
        for each in busy:
            each.close()
        other.endpoint.close()


def test_an_endpoint_that_is_closed_is_asked_nothing_more() -> None:
    endpoint = Endpoint(None)
    endpoint.close()
    with pytest.raises(RequestRefused, match="the run is over"):
        endpoint.submit(Prompt(messages=(Message(role="user", text="x"),)))


def test_whoever_opens_very_many_connections_only_harms_himself(asked: Asked, gpt: Any) -> None:
    held = [
        socket.create_connection(("127.0.0.1", asked.endpoint.port), timeout=20)
        for _ in range(MAX_CONNECTIONS + 10)
    ]
    for each in held:
        each.close()
    answered = gpt.with_options(max_retries=5).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}]
    )
    assert answered.choices[0].message.content == "hello"


def test_an_endpoint_that_closes_refuses_what_still_waits() -> None:
    endpoint = Endpoint(None)
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{endpoint.port}/v1", api_key="none", max_retries=0
    ) as client:
        threading.Thread(target=lambda: (endpoint.requests.get(), endpoint.close())).start()
        with pytest.raises(openai.PermissionDeniedError, match="the run is over"):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
