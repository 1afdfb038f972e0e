"""Google's API, called by Google's client."""

import json
import threading
from collections.abc import Iterator

import pytest
from google import genai
from google.genai import errors, types

from mlagentbench.endpoint.server import Endpoint, ModelRequest
from mlagentbench.records import Prompt, Reply, ToolCall

CALLS = (
    ToolCall(id="c1", name="look", arguments='{"at": "x"}'),
    ToolCall(id="c2", name="look", arguments='{"at": "y"}'),
)
REPLY = Reply(
    text="words " * 1000,
    calls=CALLS,
    reasoning="hm",
    provider_state='{"provider":"p","parts":[]}',
    input_tokens=7,
    output_tokens=3,
)
LOOK = types.FunctionDeclaration(
    name="look",
    description="Looks.",
    parameters=types.Schema(
        type=types.Type.OBJECT, properties={"at": types.Schema(type=types.Type.STRING, nullable=True)}
    ),
)
CONFIG = types.GenerateContentConfig(
    system_instruction="be brief",
    tools=[types.Tool(function_declarations=[LOOK])],
    tool_config=types.ToolConfig(
        function_calling_config=types.FunctionCallingConfig(
            mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=["look"]
        )
    ),
    temperature=0.5,
    stop_sequences=["END"],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)


class AnsweredClient:
    """Google's client, connected to an endpoint that answers every prompt with `reply`."""

    def __init__(self) -> None:
        self.endpoint, self.prompts, self.reply = Endpoint(None), list[Prompt](), REPLY
        options = types.HttpOptions(base_url=f"http://127.0.0.1:{self.endpoint.port}")
        self.client = genai.Client(api_key="none", http_options=options, vertexai=False)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            request: ModelRequest = self.endpoint.requests.get()
            self.prompts.append(request.prompt)
            request.answer(self.reply)


@pytest.fixture
def google() -> Iterator[AnsweredClient]:
    answered = AnsweredClient()
    yield answered
    answered.client.close()
    answered.endpoint.close()


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_goes_there_and_back(google: AnsweredClient, stream: bool) -> None:
    models, asked = google.client.models, types.UserContent("look at x and y")
    if stream:
        responses = list(models.generate_content_stream(model="gemini-x", contents=[asked], config=CONFIG))
    else:
        responses = [models.generate_content(model="gemini-x", contents=[asked], config=CONFIG)]
    parts = [part for response in responses for part in response.candidates[0].content.parts]  # type: ignore[index,union-attr]
    assert "".join(part.text or "" for part in parts if not part.thought) == REPLY.text
    called = [part.function_call for part in parts if part.function_call]
    assert [(call.id, call.name, json.dumps(call.args)) for call in called] == [
        (call.id, call.name, call.arguments) for call in CALLS
    ]
    last = responses[-1]
    assert last.candidates and last.candidates[0].finish_reason == types.FinishReason.STOP
    assert (last.model_version, last.usage_metadata and last.usage_metadata.total_token_count) == (
        "gemini-x",
        10,
    )
    results = [types.Part.from_function_response(name="look", response={"output": at}) for at in "xy"]
    contents = [asked, types.ModelContent(parts), types.UserContent(results)]
    google.reply = Reply(text="cut", finish="length")
    cut = models.generate_content(model="gemini-x", contents=contents, config=CONFIG)  # type: ignore[arg-type]
    assert cut.candidates and cut.candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
    first, second = google.prompts
    assert (first.stop, first.sampling.temperature, first.tool_choice.names) == (("END",), 0.5, ("look",))
    assert first.tools[0].parameters["properties"]["at"]["type"] == ["string", "null"]
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "tool", "tool"]
    turn = second.messages[2]
    assert (turn.text, turn.calls, turn.reasoning) == (REPLY.text, CALLS, "hm")
    assert turn.provider_state == REPLY.provider_state
    assert [(message.answers, message.text) for message in second.messages[3:]] == [("c1", "x"), ("c2", "y")]


def test_an_image_is_refused_and_tokens_are_counted(google: AnsweredClient) -> None:
    models = google.client.models
    image = types.Part.from_bytes(data=b"png", mime_type="image/png")
    with pytest.raises(errors.ClientError, match="the model of this run, not images"):
        models.generate_content(model="m", contents=[image])
    assert not google.prompts and "not images" in google.endpoint.take_refusals()[0]
    assert models.count_tokens(model="m", contents="x" * 400).total_tokens == 101
    assert models.get(model="gemini-x").name == "models/gemini-x"
