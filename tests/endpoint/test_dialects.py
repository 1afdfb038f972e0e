"""The endpoint, called by the clients that external programs really use."""

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

from mlagentbench.endpoint.chat import Chat
from mlagentbench.endpoint.reasoning import parse_state_token
from mlagentbench.endpoint.routes import RESPONSES
from mlagentbench.endpoint.server import MAX_CONNECTIONS, Endpoint, ModelRequest, RequestRefused
from mlagentbench.records import Message, Prompt, Reply, ToolCall

TOOL = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
LONG = "many words, " * 1000
REPLIES = {
    "text": Reply(text="hello", model="fake", input_tokens=7, output_tokens=3),
    "a long text": Reply(text=LONG, model="fake", input_tokens=7, output_tokens=3),
    "a call": Reply(calls=(ToolCall(id="c1", name="read", arguments='{"path": "a"}'),), model="fake"),
    "text and calls": Reply(
        text="both",
        calls=tuple(
            ToolCall(id=f"c{n}", name="read", arguments=json.dumps({"path": "x" * n})) for n in (1, 3000)
        ),
        model="fake",
    ),
    "nothing": Reply(model="fake"),
}


class AnsweredEndpoint:
    """An endpoint whose requests are answered by a background thread."""

    def __init__(self) -> None:
        self.endpoint = Endpoint(None)
        self.prompts: list[Prompt] = []
        self.answer: Callable[[ModelRequest], None] = lambda request: request.answer(REPLIES["text"])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            model_request = self.endpoint.requests.get()
            self.prompts.append(model_request.prompt)
            self.answer(model_request)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.endpoint.port}"


@pytest.fixture
def answered() -> Iterator[AnsweredEndpoint]:
    running = AnsweredEndpoint()
    yield running
    running.endpoint.close()


@pytest.fixture
def openai_client(answered: AnsweredEndpoint) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{answered.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(answered: AnsweredEndpoint) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=answered.url, api_key="none", max_retries=0) as client:
        yield client


def expected_reply(name: str) -> tuple[str, list[tuple[str, str, Any]]]:
    reply = REPLIES[name]
    return reply.text, [(call.id, call.name, json.loads(call.arguments)) for call in reply.calls]


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.parametrize("stream", [False, True])
def test_chat_completions_work_with_the_openai_client(
    answered: AnsweredEndpoint, openai_client: Any, name: str, stream: bool
) -> None:
    answered.answer = lambda request: request.answer(REPLIES[name])
    tools = [{"type": "function", "function": {"name": "read", "description": "reads", "parameters": TOOL}}]
    arguments = {
        "model": "gpt",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": tools,
        "max_tokens": 9,
    }
    if not stream:
        message = openai_client.chat.completions.create(**arguments).choices[0].message
        text, calls = message.content or "", message.tool_calls or []
        tool_calls = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in calls]
    else:
        chunks = list(
            openai_client.chat.completions.create(
                **arguments, stream=True, stream_options={"include_usage": True}
            )
        )
        assert chunks[-1].usage.prompt_tokens == REPLIES[name].input_tokens
        deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
        text = "".join(delta.content or "" for delta in deltas)
        parts = [call for delta in deltas for call in delta.tool_calls or []]
        tool_calls = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in parts]
    assert (text, tool_calls) == expected_reply(name)
    assert answered.prompts[0].max_tokens == 9 and answered.prompts[0].tools[0].parameters == TOOL


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.parametrize("stream", [False, True])
def test_responses_work_with_the_openai_client(
    answered: AnsweredEndpoint, openai_client: Any, name: str, stream: bool
) -> None:
    answered.answer = lambda request: request.answer(REPLIES[name])
    tools = [
        {"type": "function", "name": "read", "description": "reads", "parameters": TOOL, "strict": False}
    ]
    arguments = {"model": "gpt", "input": "hi", "instructions": "be kind", "tools": tools}
    if stream:
        with openai_client.responses.stream(**arguments) as events:
            kinds = [event.type for event in events]
            response = events.get_final_response()
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    else:
        response = openai_client.responses.create(**arguments)
    calls = [item for item in response.output if item.type == "function_call"]
    tool_calls = [(call.call_id, call.name, json.loads(call.arguments)) for call in calls]
    assert (response.output_text, tool_calls) == expected_reply(name)
    assert [message.role for message in answered.prompts[0].messages] == ["system", "user"]


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.parametrize("stream", [False, True])
def test_messages_work_with_the_anthropic_client(
    answered: AnsweredEndpoint, anthropic_client: Any, name: str, stream: bool
) -> None:
    answered.answer = lambda request: request.answer(REPLIES[name])
    tools = [{"name": "read", "description": "reads", "input_schema": TOOL}]
    messages = [{"role": "user", "content": "hi"}]
    arguments = {
        "model": "claude",
        "max_tokens": 9,
        "system": "be kind",
        "messages": messages,
        "tools": tools,
    }
    if stream:
        with anthropic_client.messages.stream(**arguments) as events:
            message = events.get_final_message()
    else:
        message = anthropic_client.messages.create(**arguments)
    text = "".join(block.text for block in message.content if block.type == "text")
    tool_calls = [
        (block.id, block.name, block.input) for block in message.content if block.type == "tool_use"
    ]
    assert (text, tool_calls) == expected_reply(name)
    assert message.stop_reason == ("tool_use" if tool_calls else "end_turn")
    assert answered.prompts[0].messages[0] == Message(role="system", text="be kind")


CALL = ToolCall(id="c1", name="read", arguments='{"path": "a"}')
CONVERSATION = (
    Message(role="system", text="be kind"),
    Message(role="user", text="read a"),
    Message(role="assistant", text="I read it", calls=(CALL,)),
    Message(role="tool", text="content of a", answers="c1"),
    Message(role="user", text="and now?"),
)


def test_a_conversation_with_tools_is_parsed_alike_in_every_dialect(
    answered: AnsweredEndpoint, openai_client: Any, anthropic_client: Any
) -> None:
    function = {"name": "read", "arguments": '{"path": "a"}'}
    openai_client.chat.completions.create(
        model="m",
        messages=[
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "read a"}]},
            {
                "role": "assistant",
                "content": "I read it",
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "content of a"},
            {"role": "user", "content": "and now?"},
        ],
        stop=["END"],
    )
    openai_client.responses.create(
        model="m",
        instructions="be kind",
        input=[
            {"role": "user", "content": "read a"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I read it", "annotations": []}],
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
    anthropic_client.messages.create(
        model="m",
        max_tokens=5,
        system=[{"type": "text", "text": "be kind"}],
        messages=[
            {"role": "user", "content": "read a"},
            {"role": "assistant", "content": [{"type": "text", "text": "I read it"}, use]},
            {"role": "user", "content": [result, {"type": "text", "text": "and now?"}]},
        ],
        stop_sequences=["END"],
    )
    assert [prompt.messages for prompt in answered.prompts] == [CONVERSATION] * 3
    assert [prompt.stop for prompt in answered.prompts] == [("END",), (), ("END",)]


@pytest.mark.parametrize(
    ("kind", "openai_error", "anthropic_error"),
    [
        ("context_length_exceeded", openai.BadRequestError, anthropic.BadRequestError),
        ("budget", openai.PermissionDeniedError, anthropic.PermissionDeniedError),
        ("model", openai.InternalServerError, anthropic.InternalServerError),
    ],
)
def test_a_refused_request_raises_the_error_that_clients_expect(
    answered: AnsweredEndpoint,
    openai_client: Any,
    anthropic_client: Any,
    kind: str,
    openai_error: type[Exception],
    anthropic_error: type[Exception],
) -> None:
    answered.answer = lambda request: request.refuse(kind, "because")
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai_error, match="because"):
        openai_client.chat.completions.create(model="m", messages=messages)
    with pytest.raises(openai_error, match="because"):
        openai_client.responses.create(model="m", input="hi", stream=True)
    with pytest.raises(
        anthropic_error, match="prompt is too long: because" if kind.startswith("context") else "because"
    ):
        anthropic_client.messages.create(model="m", max_tokens=5, messages=messages)


FUNCTION = {"type": "function", "name": "now", "description": "Tells it."}
MALFORMED = {
    "not JSON": b"{",
    "not an object": b"[]",
    "no messages": b"{}",
    "messages that are not objects": b'{"messages": [1]}',
    "an unknown role": b'{"messages": [{"role": "king", "content": "x"}]}',
    "content of the wrong type": b'{"messages": [{"role": "user", "content": 5}], "input": 5}',
    "a tool without a name": (
        b'{"messages": [{"role": "user"}], "input": "x", "tools": [{"type": "function"}]}'
    ),
    "a list": b'[{"messages": [{"role": "user"}]}]',
    "deep": b"[" * 100_000,
    "deep inside an object": b'{"messages": [{"role": "user"}], "input": "x", "a": '
    + b"[" * 300
    + b"]" * 300
    + b"}",
    "NaN": b'{"messages": [{"role": "user"}], "input": "x", "temperature": NaN}',
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "Only text can be passed to the model of this run, not images.",
    ),
    "a hosted tool": (
        {"tools": [{"type": "web_search"}]},
        "The tool web_search runs on a provider's servers",
    ),
    "several choices": ({"n": 2}, "The field n cannot be passed"),
    "token probabilities": ({"logprobs": True}, "The field logprobs cannot be passed"),
    "a call in the form before tools": (
        {"messages": [{"role": "assistant", "function_call": {"name": "read", "arguments": "{}"}}]},
        "function_call of a message cannot be passed",
    ),
    "a foreign signature": (
        {"messages": [{"role": "assistant", "reasoning_details": [{"data": "?"}]}]},
        "signature that is not from this endpoint",
    ),
}
WRONG_TYPES: dict[str, dict[str, Any]] = {
    "stop is a number": {"stop": 5},
    "a stop sequence is an object": {"stop": ["a", {}]},
    "stream_options is a string": {"stream": True, "stream_options": "yes"},
    "a function is a string": {"tools": [{"function": "read"}]},
    "parameters are a list": {"tools": [{"function": {"name": "read", "parameters": ["path"]}}]},
    "a call has a string as its function": {
        "messages": [{"role": "assistant", "tool_calls": [{"function": "read"}]}]
    },
}


@pytest.mark.parametrize("more", WRONG_TYPES.values(), ids=WRONG_TYPES.keys())
def test_a_field_of_the_wrong_type_is_rejected_with_a_message(
    answered: AnsweredEndpoint, more: dict[str, Any]
) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], **more}
    status, response = send_request(answered, "POST", "/v1/chat/completions", json.dumps(body).encode())
    assert status == 400 and " must be " in response["error"]["message"]
    assert not answered.prompts


ASKED: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "x"},
    "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9},
    "/v1beta/models/m:generateContent": {"contents": [{"parts": [{"text": "x"}]}]},
    "/v1beta/models/m:streamGenerateContent?alt=sse": {"contents": [{"parts": [{"text": "x"}]}]},
}
PNG = {"mimeType": "image/png", "data": ""}
REFUSED_ELSEWHERE: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "not images"),
    (
        "/v1/responses",
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}]},
        "not images",
    ),
    ("/v1/responses", {"input": [{"type": "item_reference", "id": "x"}]}, "type 'item_reference'"),
    ("/v1/responses", {"previous_response_id": "x"}, "The field previous_response_id"),
    ("/v1/responses", {"tools": [{"type": "file_search"}]}, "The tool file_search"),
    ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "not images"),
    (
        "/v1/messages",
        {
            "messages": [
                {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image"}]}]}
            ]
        },
        "not images",
    ),
    ("/v1/messages", {"system": [{"type": "image"}]}, "not images"),
    ("/v1/messages", {"mcp_servers": [{"name": "x"}]}, "The field mcp_servers"),
    ("/v1/messages", {"tools": [{"type": "web_search_20250305", "name": "x"}]}, "The tool web_search"),
    *(
        (path, more, reason)
        for path in list(ASKED)[2:]
        for more, reason in (
            ({"contents": [{"parts": [{"inlineData": PNG}]}]}, "not images"),
            ({"systemInstruction": {"parts": [{"inlineData": PNG}]}}, "not images"),
            ({"cachedContent": "x"}, "The field cachedContent"),
            ({"tools": [{"googleSearch": {}}]}, "The tool googleSearch"),
            (
                {
                    "generationConfig": {
                        "responseMimeType": "text/x.enum",
                        "responseSchema": {"type": "STRING"},
                    }
                },
                "The reply format 'text/x.enum'",
            ),
        )
    ),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "more", "reason"), REFUSED_ELSEWHERE)
def test_the_other_dialects_refuse_it_too(
    answered: AnsweredEndpoint, path: str, more: dict[str, Any], reason: str, stream: bool
) -> None:
    body = {**ASKED[path], **more, "stream": stream}
    status, response = send_request(answered, "POST", path, json.dumps(body).encode())
    assert status == 400 and reason in response["error"]["message"]
    assert reason in answered.endpoint.take_refusals()[0] and not answered.prompts


@pytest.mark.parametrize(("more", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_no_model_can_be_given_is_refused_and_remembered(
    answered: AnsweredEndpoint, more: dict[str, Any], reason: str
) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], **more}
    status, response = send_request(answered, "POST", "/v1/chat/completions", json.dumps(body).encode())
    assert (status, response["error"]["code"]) == (400, "unsupported")
    assert reason in response["error"]["message"]
    assert reason in answered.endpoint.take_refusals()[0] and not answered.prompts


def test_an_unpaired_surrogate_is_replaced(answered: AnsweredEndpoint) -> None:
    content = rb'"cut \\ud800 off \ud83d\ude00 \ud83d"'
    body = rb'{"messages": [{"role": "user", "content": %s}], "stop": ["\udc00"]}' % content
    assert send_request(answered, "POST", "/v1/chat/completions", body)[0] == 200
    assert answered.prompts[0].messages[0].text == "cut \\ud800 off 😀 �"
    assert Prompt.model_validate_json(answered.prompts[0].model_dump_json()) == answered.prompts[0]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_is_rejected(answered: AnsweredEndpoint, path: str, body: bytes) -> None:
    assert send_request(answered, "POST", path, body)[0] == 400
    assert not answered.prompts


def send_request(
    answered: AnsweredEndpoint, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", answered.endpoint.port, timeout=20)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    result = response.status, json.loads(response.read())
    connection.close()
    return result


def test_models_are_listed_tokens_are_counted_and_other_paths_are_unknown(
    answered: AnsweredEndpoint, openai_client: Any, anthropic_client: Any
) -> None:
    assert [model.id for model in openai_client.models.list()] == ["model"]
    messages = [{"role": "user", "content": "x" * 400}]
    assert anthropic_client.messages.count_tokens(model="m", messages=messages).input_tokens == 101
    assert (
        openai_client.models.retrieve("gpt-5").id == anthropic_client.models.retrieve("gpt-5").id == "gpt-5"
    )
    connection = http.client.HTTPConnection("127.0.0.1", answered.endpoint.port, timeout=20)
    connection.request("HEAD", "/")
    assert connection.getresponse().status == 200
    connection.close()
    assert send_request(answered, "GET", "/v1/files")[0] == 404
    assert send_request(answered, "POST", "/v1/embeddings", b"{}")[0] == 404


@pytest.mark.parametrize("digits", [11, 5000])
def test_an_oversized_request_is_rejected_before_it_is_read(answered: AnsweredEndpoint, digits: int) -> None:
    with socket.create_connection(("127.0.0.1", answered.endpoint.port), timeout=20) as raw:
        raw.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n" % (b"9" * digits))
        assert b"413" in raw.recv(100)


def test_a_refusal_that_quotes_the_request_is_short_and_has_no_control_characters(
    answered: AnsweredEndpoint,
) -> None:
    field = "\x1b]0;title\x07" + "x" * 10**6
    body = {"messages": [{"role": "user", "content": "x"}], field: 1}
    assert send_request(answered, "POST", "/v1/chat/completions", json.dumps(body).encode())[0] == 400
    (refusal,) = answered.endpoint.take_refusals()
    assert refusal.startswith("/v1/chat/completions: The field ") and refusal.isprintable()
    assert len(refusal) < 700


def test_parallel_requests_are_held_one_at_a_time(answered: AnsweredEndpoint) -> None:
    held: list[int] = []

    def answer(model_request: ModelRequest) -> None:
        held.append(len(answered.endpoint._pending))
        model_request.answer(REPLIES["text"])

    answered.answer = answer
    body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
    with ThreadPoolExecutor(8) as pool:
        statuses = list(
            pool.map(lambda _: send_request(answered, "POST", "/v1/chat/completions", body)[0], range(24))
        )
    assert statuses == [200] * 24 and held == [1] * 24


def test_the_connection_limit_is_per_program(answered: AnsweredEndpoint) -> None:
    other = AnsweredEndpoint()
    busy = [
        http.client.HTTPConnection("127.0.0.1", answered.endpoint.port, timeout=20)
        for _ in range(MAX_CONNECTIONS)
    ]
    try:
        for connection in busy:
            connection.request("GET", "/v1/models")
            assert connection.getresponse().read()
        assert send_request(other, "GET", "/v1/models")[0] == 200
    finally:
        for connection in busy:
            connection.close()
        other.endpoint.close()


def test_a_closed_endpoint_refuses_new_requests() -> None:
    endpoint = Endpoint(None)
    endpoint.close()
    with pytest.raises(RequestRefused, match="The run is over"):
        endpoint.submit(Prompt(messages=(Message(role="user", text="x"),)))


def test_too_many_connections_do_not_break_the_endpoint(
    answered: AnsweredEndpoint, openai_client: Any
) -> None:
    held = [
        socket.create_connection(("127.0.0.1", answered.endpoint.port), timeout=20)
        for _ in range(MAX_CONNECTIONS + 10)
    ]
    for connection in held:
        connection.close()
    completion = openai_client.with_options(max_retries=5).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}]
    )
    assert completion.choices[0].message.content == "hello"


def test_closing_an_endpoint_refuses_waiting_requests() -> None:
    endpoint = Endpoint(None)
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{endpoint.port}/v1", api_key="none", max_retries=0
    ) as client:
        threading.Thread(target=lambda: (endpoint.requests.get(), endpoint.close())).start()
        with pytest.raises(openai.PermissionDeniedError, match="The run is over"):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])


def test_a_lone_instruction_is_the_question_as_aide_sends_it() -> None:
    prompt = Chat().parse_request({"messages": [{"role": "system", "content": "Write a script."}]})
    assert prompt.messages == (Message(role="user", text="Write a script."),)


def test_a_function_call_may_have_googles_mark_for_no_signature_as_gemini_cli_sends_it() -> None:
    assert parse_state_token("skip_thought_signature_validator") == ""


def test_the_name_of_a_participant_reaches_the_model() -> None:
    turns = [{"role": "user", "name": "bob", "content": "hi"}, {"role": "tool", "name": "ls", "content": "a"}]
    assert [message.text for message in Chat().parse_request({"messages": turns}).messages] == [
        "bob: hi",
        "a",
    ]


def test_the_description_of_a_namespace_reaches_the_model_with_its_tools_only() -> None:
    clock = {"type": "namespace", "name": "clock", "description": "About time.", "tools": [FUNCTION]}
    tools = RESPONSES.parse_request({"input": "x", "tools": [clock, FUNCTION]}).tools
    assert [(tool.name, tool.description) for tool in tools] == [
        ("clock__now", "About time.\n\nTells it."),
        ("now", "Tells it."),
    ]
