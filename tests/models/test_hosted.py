import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from api_formats import Completion
from fake_provider import BrokenReply, ErrorReply, FakeProvider, ScriptedReply, error_reply
from retry_clock import KEY, NAMES, RetryClock

from mlagentbench.errors import ModelFault, PromptRejected, PromptTooLong, UsageError
from mlagentbench.models.base import Price, load_model
from mlagentbench.models.hosted import Hosted
from mlagentbench.providers.failures import redact_keys
from mlagentbench.providers.names import COMPATIBLE_KEY_VARIABLE, PROVIDERS
from mlagentbench.records import Message, Prompt, ReplyFormat, Tool, ToolCall
from mlagentbench.runner.folder import RunFolder
from mlagentbench.system.extras import install_command

Create = Callable[..., Hosted]
HELLO = Prompt(messages=(Message(role="user", text="hello"),))
LOOK = Tool(
    name="look",
    description="Look at it.",
    parameters={"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
)
every_api = pytest.mark.parametrize("api", NAMES)


@every_api
def test_a_reply_names_its_model_and_its_cost(create: Create, server: FakeProvider, api: str) -> None:
    server.script = [Completion("good morning")]
    reply = create(api).reply(HELLO)
    assert (reply.text, reply.calls, reply.retries) == ("good morning", (), 0)
    assert reply.model == NAMES[api].partition(":")[2]
    price = create(api).price
    assert price and reply.output_tokens == 4 and reply.input_tokens > 5
    assert reply.dollars == pytest.approx(reply.input_tokens * price.input + 4 * price.output)


@every_api
def test_tools_are_offered_called_and_answered(create: Create, server: FakeProvider, api: str) -> None:
    server.script = [Completion("I look.", calls=(("look", {"at": "x"}), ("look", {"at": "y"}))), "seen"]
    model = create(api)
    asked = HELLO.replace(messages=(Message(role="system", text="be brief"), *HELLO.messages), tools=(LOOK,))
    first = model.reply(asked)
    assert first.text == "I look."
    assert [(call.name, call.arguments) for call in first.calls] == [
        ("look", '{"at": "x"}'),
        ("look", '{"at": "y"}'),
    ]
    answers = [Message(role="tool", text=f"saw {at}", answers=call.id) for at, call in enumerate(first.calls)]
    turn = Message(role="assistant", text=first.text, calls=first.calls)
    assert model.reply(asked.replace(messages=(*asked.messages, turn, *answers))).text == "seen"
    sent = str(server.requests[1].body)
    assert all(word in sent for word in ("be brief", "hello", "I look.", "saw 0", "saw 1", first.calls[1].id))


def test_arguments_that_are_not_json_are_returned_unchanged(create: Create, server: FakeProvider) -> None:
    server.script = [Completion(calls=(("look", '{"at": oops'),))]
    (call,) = create().reply(HELLO.replace(tools=(LOOK,))).calls
    assert call == ToolCall(id=call.id, name="look", arguments='{"at": oops')


@every_api
def test_a_reply_is_cut_at_stop_sequences_sent_or_not(create: Create, server: FakeProvider, api: str) -> None:
    server.script = ["Thought: a\nFive: b\nObservation: c"]
    stops = ("Observation:", "One:", "Two:", "Three:", "Five:", "\n\n")
    assert create(api).reply(HELLO.replace(stop=stops)).text == "Thought: a\n"
    sent = server.requests[0].body.get("stop") or server.requests[0].body.get("stop_sequences")
    assert sent == (None if api == "responses" else ["Observation:", "One:", "Two:", "Three:"])


def test_a_model_that_rejects_stop_sequences_is_called_without_them(
    create: Create, server: FakeProvider
) -> None:
    rejection = error_reply(400, message="Unsupported parameter: 'stop' is not supported with this model.")
    server.script = [rejection, "yes Observation: no", "again"]
    model = create()
    assert model.reply(HELLO.replace(stop=("Observation:",))).text == "yes "
    model.reply(HELLO.replace(stop=("Observation:",)))
    assert ["stop" in seen.body for seen in server.requests] == [True, False, False]


def test_a_response_that_starts_with_a_stop_sequence_is_an_empty_reply(
    create: Create, server: FakeProvider
) -> None:
    server.script = ["Observation: none"]
    assert create().reply(HELLO.replace(stop=("Observation:",))).text == ""


@every_api
def test_max_tokens_is_sent(create: Create, server: FakeProvider, api: str) -> None:
    server.script = ["word " * 50]
    assert len(create(api).reply(HELLO.replace(max_tokens=10)).text) == 40


TRANSIENT: dict[str, ScriptedReply] = {
    "rate limit": error_reply(429),
    "overload": error_reply(529),
    "unavailable": error_reply(503),
    "server error": error_reply(500),
    "bad gateway": error_reply(502),
    "gateway timeout": error_reply(504),
    "conflict": error_reply(409),
    "error in the stream": BrokenReply("error"),
    "truncated": BrokenReply("cut"),
    "stream without an end event": BrokenReply("end"),
    "garbage": BrokenReply("garbage"),
    "empty": BrokenReply("empty"),
}


@every_api
@pytest.mark.parametrize("failure", TRANSIENT)
def test_transient_failures_are_retried_and_counted(
    create: Create, server: FakeProvider, retries: RetryClock, api: str, failure: str
) -> None:
    server.script = [TRANSIENT[failure], TRANSIENT[failure], "at last"]
    reply = create(api).reply(HELLO)
    assert (reply.text, reply.retries, len(server.requests)) == ("at last", 2, 3)
    assert len(retries.waits_s) == 2 and retries.waits_s[0] <= 2 and retries.waits_s[1] <= 4


@every_api
@pytest.mark.parametrize("how", ["stall", "drip"])
def test_a_stalled_or_endless_response_times_out_and_is_retried(
    create: Create, server: FakeProvider, api: str, how: str
) -> None:
    server.script = [BrokenReply(how), "at last"]  # type: ignore[arg-type]
    reply = create(api, **{"read_timeout_s" if how == "stall" else "attempt_timeout_s": 0.3}).reply(HELLO)
    assert (reply.text, reply.retries) == ("at last", 1)


def test_retry_after_is_honoured_in_seconds_and_as_a_date(
    create: Create, server: FakeProvider, retries: RetryClock
) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    server.script = [error_reply(429, retry_after="7"), error_reply(429, retry_after=date), "ok"]
    create().reply(HELLO)
    assert 7 <= retries.waits_s[0] <= 9 and 80 <= retries.waits_s[1] <= 92


def test_a_retry_after_of_an_hour_is_a_fault_at_once(
    create: Create, server: FakeProvider, retries: RetryClock
) -> None:
    server.script = [error_reply(429, retry_after="3600")]
    with pytest.raises(ModelFault, match=r"asks to retry after 3600 s"):
        create().reply(HELLO)
    assert retries.waits_s == []


@every_api
def test_the_last_attempt_ends_in_one_line_with_the_last_reason(
    create: Create, server: FakeProvider, retries: RetryClock, api: str
) -> None:
    server.script = [error_reply(529, message="busy\nvery busy")] * 9
    with pytest.raises(ModelFault) as raised:
        create(api).reply(HELLO)
    assert str(raised.value) == f"{NAMES[api]} failed after 8 attempts: 529: busy very busy"
    assert (len(server.requests), len(retries.waits_s)) == (8, 7) and max(retries.waits_s) <= 60
    assert raised.value.__cause__ is None and raised.value.__context__ is None


def test_an_unreachable_server_is_a_fault(retries: RetryClock) -> None:
    with pytest.raises(ModelFault, match="failed after 2 attempts: Connection error"):
        Hosted("http://127.0.0.1:9/v1#any", retries.policy(max_attempts=2)).reply(HELLO)


def test_each_retry_is_reported_to_on_retry(retries: RetryClock) -> None:
    model, lines = Hosted("http://127.0.0.1:9/v1#any", retries.policy(max_attempts=3)), list[str]()
    model.on_retry = lines.append
    with pytest.raises(ModelFault):
        model.reply(HELLO)
    reason = r"http://127.0.0.1:9/v1#any failed \(Connection error.*\)"
    assert all(re.fullmatch(rf"{reason}; attempt {n} follows in \d+ s", lines[n - 2]) for n in (2, 3))
    assert len(lines) == 2


def test_a_retry_prints_one_line_on_the_terminal(toy: Path, tmp_path: Path) -> None:
    options = ["--agent", "act", "--model", "http://127.0.0.1:9/v1#any", "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        [sys.executable, "-m", "mlagentbench", "run", str(toy), *options],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stderr
        assert "failed (Connection error" in child.stderr.readline()
        child.terminate()


def sent_prompts(server: FakeProvider) -> list[str]:
    """The last text of each request."""
    sent = (request.body.get("messages") or request.body["input"] for request in server.requests)
    contents = (messages[-1]["content"] for messages in sent)
    return [content if isinstance(content, str) else content[0]["text"] for content in contents]


ONE_PROMPT_ONLY: dict[str, tuple[ScriptedReply, int]] = {
    "a server error": (error_reply(500, message="cannot render the template"), 8),
    "moderation": (ErrorReply(403, "your input was flagged"), 1),
}


@every_api
@pytest.mark.parametrize("failure", ONE_PROMPT_ONLY)
def test_a_prompt_that_fails_while_others_are_answered_is_rejected_and_no_fault(
    create: Create, server: FakeProvider, api: str, failure: str
) -> None:
    reply, attempts = ONE_PROMPT_ONLY[failure]
    server.script = [*[reply] * attempts, "OK", reply]
    with pytest.raises(PromptRejected, match="refuses this prompt, and no other: "):
        create(api).reply(HELLO)
    assert sent_prompts(server) == ["hello"] * attempts + ["Reply with OK.", "hello"]


@every_api
def test_a_provider_that_recovers_answers_the_prompt_after_all(
    create: Create, server: FakeProvider, api: str
) -> None:
    server.script = [*[error_reply(500)] * 8, "OK", "at last"]
    reply = create(api).reply(HELLO)
    assert (reply.text, reply.retries) == ("at last", 8)


@every_api
def test_a_model_that_stays_silent_has_given_an_empty_reply(
    create: Create, server: FakeProvider, api: str
) -> None:
    server.script = [BrokenReply("empty")] * 3
    reply = create(api).reply(HELLO)
    assert (reply.text, reply.calls, reply.retries) == ("", (), 2)


# The packages of the providers fail on these before they send anything.
IMPOSSIBLE_SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"anyOf": 5}}},
    {"type": "object", "properties": [1]},
    {"type": "array", "items": 5},
]


@every_api
@pytest.mark.parametrize("schema", IMPOSSIBLE_SCHEMAS, ids=str)
def test_a_schema_that_cannot_be_sent_is_rejected_and_no_fault(
    create: Create, server: FakeProvider, api: str, schema: dict[str, Any]
) -> None:
    server.script = ["OK", "OK"]
    model = create(api)
    for asked in (
        HELLO.replace(tools=(LOOK.replace(parameters=schema),)),
        HELLO.replace(reply_format=ReplyFormat(json_schema=schema)),
    ):
        with pytest.raises(PromptRejected, match="refuses this prompt, and no other: "):
            model.reply(asked)
    assert sent_prompts(server) == ["Reply with OK."] * 2


PERMANENT = {
    "bad request": (ErrorReply(400, "temperature must be a number"), "400: temperature must be a number"),
    "no such model": (ErrorReply(404, "no such model", code="model_not_found"), "404: no such model"),
    "no credit": (ErrorReply(429, "You exceeded your quota", code="insufficient_quota"), "quota"),
}


@pytest.mark.parametrize("failure", PERMANENT)
def test_permanent_failures_are_not_retried(create: Create, server: FakeProvider, failure: str) -> None:
    reply, reason = PERMANENT[failure]
    server.script = [reply]
    with pytest.raises(ModelFault, match=reason):
        create().reply(HELLO)
    assert sent_prompts(server).count("hello") == 1


@every_api
@pytest.mark.parametrize("status", [401, 403])
def test_a_rejected_key_is_reported_by_its_variable_and_never_shown(
    create: Create, server: FakeProvider, api: str, status: int
) -> None:
    server.script = [ErrorReply(status, "bad key", echo_key=True)]
    with pytest.raises(ModelFault, match=r"check (OPENAI|ANTHROPIC)_API_KEY") as raised:
        create(api).reply(HELLO)
    assert KEY not in str(raised.value) and sent_prompts(server).count("hello") == 1


def test_a_key_in_a_reply_is_redacted(create: Create, server: FakeProvider) -> None:
    server.script = [Completion(f"your key is {KEY}", calls=(("look", {"at": KEY}),))]
    assert KEY not in create().reply(HELLO).model_dump_json()


def test_for_an_unlisted_provider_every_key_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_GATEWAY_API_KEY", KEY)
    assert redact_keys(f"you sent {KEY}", "gateway/openai") == "you sent [key]"


TOO_LONG = [
    ErrorReply(400, "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"),
    ErrorReply(400, "prompt is too long: 212345 tokens > 200000 maximum"),
    ErrorReply(400, "The input token count (9) exceeds the maximum number of tokens allowed (5)."),
    ErrorReply(400, "the request exceeds the available context size, try increasing it"),
    ErrorReply(422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"),
    ErrorReply(413, "Request too large"),
    ErrorReply(429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 45000"),
]


@every_api
@pytest.mark.parametrize("reply", TOO_LONG, ids=lambda reply: reply.message[:20])
def test_too_long_a_prompt_raises_prompt_too_long(
    create: Create, server: FakeProvider, api: str, reply: ErrorReply
) -> None:
    server.script = [reply]
    with pytest.raises(PromptTooLong, match="The prompt is too long for "):
        create(api).reply(HELLO)
    assert len(server.requests) == 1


def test_tokens_of_failed_attempts_are_counted(create: Create, server: FakeProvider) -> None:
    server.script = ["fine", BrokenReply("empty"), "fine"]
    model = create()
    once, twice = model.reply(HELLO), model.reply(HELLO)
    assert twice.input_tokens == 2 * once.input_tokens and twice.dollars > once.dollars


def test_a_server_by_url_never_receives_the_openai_key(
    server: FakeProvider, retries: RetryClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = [Completion("small", calls=(("look", {"at": "x"}),))]
    server.key = ""
    model = load_model(f"{server.url}/v1#tiny:1b")
    assert model.price is None
    reply = model.reply(HELLO.replace(tools=(LOOK,)))
    assert (reply.text, reply.model, reply.dollars) == ("small", "tiny:1b", 0.0)
    assert KEY not in str(server.requests[0].headers) and server.requests[0].body["max_tokens"] == 4000
    monkeypatch.setenv(COMPATIBLE_KEY_VARIABLE, "another-key-0123456789")
    server.script = ["x"]
    load_model(f"{server.url}/v1#tiny:1b").reply(HELLO)
    assert server.requests[1].headers["authorization"] == "Bearer another-key-0123456789"


def test_groq_is_called_through_its_own_package(create: Create, server: FakeProvider) -> None:
    server.script = [error_reply(503), Completion("quick", calls=(("look", {"at": "x"}),))]
    reply = create("groq:llama-3.3-70b-versatile").reply(HELLO.replace(tools=(LOOK,)))
    assert (reply.text, reply.calls[0].arguments, reply.retries) == ("quick", '{"at": "x"}', 1)


def test_google_is_called_in_its_own_api(
    server: FakeProvider, retries: RetryClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
    with pytest.raises(ModelFault, match="404: unknown path"):
        Hosted("google-gla:gemini-2.5-flash", retries.policy()).reply(
            HELLO.replace(stop=("Stop:",), tools=(LOOK,))
        )
    seen, check = server.requests
    assert check.body["contents"][0]["parts"] == [{"text": "Reply with OK."}]
    assert "/models/gemini-2.5-flash:streamGenerateContent" in seen.path
    assert seen.body["contents"] == [{"parts": [{"text": "hello"}], "role": "user"}]
    assert seen.body["generationConfig"]["stopSequences"] == ["Stop:"]


@pytest.mark.parametrize("name", ["mistral:mistral-large-latest", "cohere:command-a"])
def test_other_providers_load_once_their_key_is_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROVIDERS[name.partition(":")[0]].key_variables[0], KEY)
    assert isinstance(load_model(name), Hosted)


@pytest.mark.parametrize(
    "name", sorted(set(PROVIDERS) - {"azure", "bedrock", "huggingface", "xai", "ollama", "vllm"})
)
def test_a_missing_key_is_reported_before_the_run_starts(name: str) -> None:
    with pytest.raises(
        UsageError, match=rf"^{name}:any: .*\b{PROVIDERS[name].key_variables[0]}\b.* is not set\.$"
    ):
        load_model(f"{name}:any")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gpt-4o", "No such model: 'gpt-4o'. Name a hosted model as PROVIDER:MODEL"),
        ("test", "No such model: 'test'. Name a hosted model as PROVIDER:MODEL"),
        ("nobody:model", "No such provider: 'nobody'. Available: openai, "),
        ("ollama:llama3", "OLLAMA_BASE_URL is not set"),
        ("http://127.0.0.1:9/v1", "http://HOST:PORT/v1#MODEL"),
        ("http://me:password@127.0.0.1:9/v1#any", "without a query or a password"),
    ],
)
def test_an_invalid_name_is_one_line_that_shows_valid_ones(name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        load_model(name)


@pytest.mark.parametrize("key", ["", " ", f"{KEY}\n", "schlüssel-0123456789"])
def test_a_key_that_is_no_header_value_is_rejected_without_showing_it(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(UsageError, match="OPENAI_API_KEY is empty, or contains") as raised:
        load_model("openai:gpt-4o")
    assert not key.strip() or key.strip() not in str(raised.value)


@pytest.mark.parametrize(
    ("package", "name", "install"),
    [
        ("pydantic_ai", "openai:gpt-4o", install_command("models")),
        ("anthropic", "anthropic:claude-opus-5", install_command("models")),
        ("boto3", "bedrock:any", "pip install 'pydantic-ai-slim[bedrock]'"),
        ("huggingface_hub", "huggingface:any", "pip install 'pydantic-ai-slim[huggingface]'"),
    ],
)
def test_a_missing_package_is_one_line_with_the_install_command(
    package: str, name: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = name.partition(":")[0]
    for module in (f"pydantic_ai.models.{provider}", f"pydantic_ai.providers.{provider}"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(UsageError) as caught:
        load_model(name)
    assert f"needs packages that are not installed: {install}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_prices_are_known_before_the_first_call(server: FakeProvider, retries: RetryClock) -> None:
    assert Hosted("openai:gpt-4o", retries.policy()).price == Price(2.5e-06, 1e-05)
    assert Hosted("openai:not-on-any-list", retries.policy()).price is None


AGENT = """
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call, Message


class Chatty(Agent):
    needs_model = True

    def run(self, env):
        while not env.done:
            text = env.ask([Message(role="user", text="what now?")]).text
            env.step(Call(action="Write File", args={"file_name": "reply.txt", "content": text}))
"""


@pytest.fixture
def chatty(tmp_path: Path) -> Path:
    path = tmp_path / "chatty.py"
    path.write_text(AGENT)
    return path


def read_all_files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_run_ends_at_its_token_limit_and_its_folder_holds_no_key(
    cli: Callable[..., "subprocess.CompletedProcess[str]"],
    server: FakeProvider,
    toy: Path,
    chatty: Path,
    tmp_path: Path,
) -> None:
    server.script = [error_reply(429, retry_after="0"), *[f"thought {number}" for number in range(9)]]
    out = tmp_path / "run"
    done = cli("run", toy, "--agent", chatty, "--model", "openai:gpt-4o", "--tokens", 80, "--out", out)
    folder = RunFolder(out)
    result, calls = folder.result, list(folder.calls())
    assert result and result.ending == "tokens" and 0 < result.tokens <= 80, done.stderr
    assert result.dollars > 0 and result.model == "openai:gpt-4o"
    assert [call.reply and call.reply.text for call in calls] == [
        f"thought {at}" for at in range(result.steps)
    ]
    assert [call.reply and call.reply.retries for call in calls][:2] == [1, 0]
    assert KEY.encode() not in read_all_files(out) and KEY not in done.stdout + done.stderr


def test_a_key_echoed_by_the_server_is_not_in_the_run_folder(
    cli: Callable[..., "subprocess.CompletedProcess[str]"],
    server: FakeProvider,
    toy: Path,
    chatty: Path,
    tmp_path: Path,
) -> None:
    server.script = [f"the key is {KEY}", ErrorReply(401, "bad key", echo_key=True)]
    out = tmp_path / "run"
    done = cli("run", toy, "--agent", chatty, "--model", "openai-chat:gpt-4o", "--out", out)
    result = RunFolder(out).result
    assert result and result.ending == "fault" and "check OPENAI_API_KEY" in result.note
    assert KEY.encode() not in read_all_files(out) and KEY not in done.stdout + done.stderr


def test_dollars_are_refused_if_the_price_is_unknown(
    cli: Callable[..., "subprocess.CompletedProcess[str]"],
    server: FakeProvider,
    toy: Path,
    chatty: Path,
    tmp_path: Path,
) -> None:
    model = f"{server.url}/v1#tiny"
    done = cli("run", toy, "--agent", chatty, "--model", model, "--dollars", 1, "--out", tmp_path / "run")
    assert done.returncode == 2 and "--dollars needs a price, but no price is known for http" in done.stderr
    assert not server.requests and not (tmp_path / "run").exists()


def test_ctrl_c_interrupts_a_stalled_call_and_the_run_can_be_resumed(
    server: FakeProvider,
    toy: Path,
    chatty: Path,
    tmp_path: Path,
    until: Callable[[Callable[[], object]], None],
) -> None:
    server.script = [BrokenReply("stall")]
    options = ["--agent", str(chatty), "--model", "openai:gpt-4o", "--out", str(tmp_path / "run")]
    child = subprocess.Popen(
        [sys.executable, "-m", "mlagentbench", "run", str(toy), *options], stderr=subprocess.PIPE, text=True
    )
    until(lambda: server.requests or child.poll() is not None)
    os.kill(child.pid, signal.SIGINT)
    _, stderr = child.communicate(timeout=20)
    assert child.returncode == 130 and "continue with: mlagentbench resume" in stderr
    assert "Traceback" not in stderr


def test_the_list_of_models_shows_how_to_name_each(
    cli: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    shown = cli("list", "models").stdout
    for form in ("scripted:FILE", "recorded:RUN", "local", "anthropic:MODEL", "http://HOST:PORT/v1#MODEL"):
        assert f"\n{form}" in shown
    assert "ANTHROPIC_API_KEY" in shown
