import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from api_formats import Completion
from fake_provider import BrokenReply, ErrorReply, FakeProvider, ScriptedReply, error_reply
from waiting import KEY, NAMES, Waits

from mlagentbench.errors import ModelFault, PromptTooLong, UsageError
from mlagentbench.models.base import Price, load_model
from mlagentbench.models.hosted import Hosted
from mlagentbench.providers.failures import redact_keys
from mlagentbench.providers.names import COMPATIBLE_KEY_VARIABLE, PROVIDERS
from mlagentbench.records import Message, Prompt, Tool, ToolCall
from mlagentbench.runner.folder import RunFolder

Ask = Callable[..., Hosted]
HELLO = Prompt(messages=(Message(role="user", text="hello"),))
LOOK = Tool(
    name="look",
    description="Look at it.",
    parameters={"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
)
every_api = pytest.mark.parametrize("api", NAMES)


@every_api
def test_a_reply_says_who_answered_and_what_it_cost(ask: Ask, wire: FakeProvider, api: str) -> None:
    wire.script = [Completion("good morning")]
    reply = ask(api).reply(HELLO)
    assert (reply.text, reply.calls, reply.retries) == ("good morning", (), 0)
    assert reply.model == NAMES[api].partition(":")[2]
    price = ask(api).price
    assert price and reply.output_tokens == 4 and reply.input_tokens > 5
    assert reply.dollars == pytest.approx(reply.input_tokens * price.input + 4 * price.output)


@every_api
def test_tools_are_offered_asked_for_and_answered(ask: Ask, wire: FakeProvider, api: str) -> None:
    wire.script = [Completion("I look.", calls=(("look", {"at": "x"}), ("look", {"at": "y"}))), "seen"]
    model = ask(api)
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
    sent = str(wire.requests[1].body)
    assert all(word in sent for word in ("be brief", "hello", "I look.", "saw 0", "saw 1", first.calls[1].id))


def test_arguments_that_are_no_json_come_as_the_model_wrote_them(ask: Ask, wire: FakeProvider) -> None:
    wire.script = [Completion(calls=(("look", '{"at": oops'),))]
    (call,) = ask().reply(HELLO.replace(tools=(LOOK,))).calls
    assert call == ToolCall(id=call.id, name="look", arguments='{"at": oops')


@every_api
def test_a_reply_ends_before_its_stop_sequences_whoever_cuts_it(
    ask: Ask, wire: FakeProvider, api: str
) -> None:
    wire.script = ["Thought: a\nFive: b\nObservation: c"]
    stops = ("Observation:", "One:", "Two:", "Three:", "Five:", "\n\n")
    assert ask(api).reply(HELLO.replace(stop=stops)).text == "Thought: a\n"
    sent = wire.requests[0].body.get("stop") or wire.requests[0].body.get("stop_sequences")
    assert sent == (None if api == "responses" else ["Observation:", "One:", "Two:", "Three:"])


def test_a_model_that_refuses_stop_sequences_is_asked_without(ask: Ask, wire: FakeProvider) -> None:
    refuses = error_reply(400, message="Unsupported parameter: 'stop' is not supported with this model.")
    wire.script = [refuses, "yes Observation: no", "again"]
    model = ask()
    assert model.reply(HELLO.replace(stop=("Observation:",))).text == "yes "
    model.reply(HELLO.replace(stop=("Observation:",)))
    assert ["stop" in seen.body for seen in wire.requests] == [True, False, False]


def test_an_answer_that_begins_with_a_stop_sequence_is_an_empty_answer(ask: Ask, wire: FakeProvider) -> None:
    wire.script = ["Observation: none"]
    assert ask().reply(HELLO.replace(stop=("Observation:",))).text == ""


@every_api
def test_the_limit_of_the_reply_is_passed_on(ask: Ask, wire: FakeProvider, api: str) -> None:
    wire.script = ["word " * 50]
    assert len(ask(api).reply(HELLO.replace(max_tokens=10)).text) == 40


PASSING: dict[str, ScriptedReply] = {
    "rate limit": error_reply(429),
    "overload": error_reply(529),
    "unavailable": error_reply(503),
    "broken": error_reply(500),
    "bad gateway": error_reply(502),
    "gateway timeout": error_reply(504),
    "conflict": error_reply(409),
    "error in the stream": BrokenReply("error"),
    "cut": BrokenReply("cut"),
    "end without an end": BrokenReply("end"),
    "garbage": BrokenReply("garbage"),
    "empty": BrokenReply("empty"),
}


@every_api
@pytest.mark.parametrize("failure", PASSING)
def test_what_passes_is_tried_again_and_counted(
    ask: Ask, wire: FakeProvider, waits: Waits, api: str, failure: str
) -> None:
    wire.script = [PASSING[failure], PASSING[failure], "at last"]
    reply = ask(api).reply(HELLO)
    assert (reply.text, reply.retries, len(wire.requests)) == ("at last", 2, 3)
    assert len(waits.seconds) == 2 and waits.seconds[0] <= 2 and waits.seconds[1] <= 4


@every_api
@pytest.mark.parametrize("how", ["stall", "drip"])
def test_a_stalled_or_endless_answer_is_given_up_and_asked_for_again(
    ask: Ask, wire: FakeProvider, api: str, how: str
) -> None:
    wire.script = [BrokenReply(how), "at last"]  # type: ignore[arg-type]
    reply = ask(api, **{"stall" if how == "stall" else "whole": 0.3}).reply(HELLO)
    assert (reply.text, reply.retries) == ("at last", 1)


def test_retry_after_is_honoured_in_seconds_and_as_a_date(ask: Ask, wire: FakeProvider, waits: Waits) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    wire.script = [error_reply(429, retry_after="7"), error_reply(429, retry_after=date), "ok"]
    ask().reply(HELLO)
    assert 7 <= waits.seconds[0] <= 9 and 80 <= waits.seconds[1] <= 92


def test_who_wants_to_be_left_alone_for_an_hour_is_not_waited_for(
    ask: Ask, wire: FakeProvider, waits: Waits
) -> None:
    wire.script = [error_reply(429, retry_after="3600")]
    with pytest.raises(ModelFault, match="left alone for 3600 s"):
        ask().reply(HELLO)
    assert waits.seconds == []


@every_api
def test_patience_ends_in_one_line_with_the_last_reason(
    ask: Ask, wire: FakeProvider, waits: Waits, api: str
) -> None:
    wire.script = [error_reply(529, message="busy\nvery busy")] * 9
    with pytest.raises(ModelFault) as raised:
        ask(api).reply(HELLO)
    assert str(raised.value) == f"{NAMES[api]} did not answer, asked 8×: 529: busy very busy"
    assert (len(wire.requests), len(waits.seconds)) == (8, 7) and max(waits.seconds) <= 60
    assert raised.value.__cause__ is None and raised.value.__context__ is None


def test_a_server_that_is_not_there_is_a_fault(waits: Waits) -> None:
    with pytest.raises(ModelFault, match="did not answer, asked 2×: Connection error"):
        Hosted("http://127.0.0.1:9/v1#any", waits.patience(tries=2)).reply(HELLO)


def test_who_follows_a_run_hears_that_a_server_does_not_answer(waits: Waits) -> None:
    model, heard = Hosted("http://127.0.0.1:9/v1#any", waits.patience(tries=3)), list[str]()
    model.on_retry = heard.append
    with pytest.raises(ModelFault):
        model.reply(HELLO)
    reason = r"http://127.0.0.1:9/v1#any does not answer \(Connection error.*\)"
    assert all(re.fullmatch(rf"{reason}; asked again in \d+ s, try {n}", heard[n - 2]) for n in (2, 3))
    assert len(heard) == 2


def test_a_retry_is_one_line_on_the_terminal(toy: Path, tmp_path: Path) -> None:
    told = (
        sys.executable,
        "-m",
        "mlagentbench",
        "run",
        str(toy),
        "--agent",
        "act",
        "--out",
        str(tmp_path / "run"),
    )
    with subprocess.Popen(
        [*told, "--model", "http://127.0.0.1:9/v1#any"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stderr
        assert "does not answer (Connection error" in child.stderr.readline()
        child.terminate()


FINAL = {
    "bad request": (ErrorReply(400, "temperature must be a number"), "400: temperature must be a number"),
    "no such model": (ErrorReply(404, "no such model", code="model_not_found"), "404: no such model"),
    "no credit": (ErrorReply(429, "You exceeded your quota", code="insufficient_quota"), "quota"),
}


@pytest.mark.parametrize("failure", FINAL)
def test_what_stays_as_it_is_is_not_tried_again(ask: Ask, wire: FakeProvider, failure: str) -> None:
    reply, reason = FINAL[failure]
    wire.script = [reply]
    with pytest.raises(ModelFault, match=reason):
        ask().reply(HELLO)
    assert len(wire.requests) == 1


@every_api
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_its_variable_and_never_the_key(
    ask: Ask, wire: FakeProvider, api: str, status: int
) -> None:
    wire.script = [ErrorReply(status, "bad key", echo_key=True)]
    with pytest.raises(ModelFault, match=r"check (OPENAI|ANTHROPIC)_API_KEY") as raised:
        ask(api).reply(HELLO)
    assert KEY not in str(raised.value) and len(wire.requests) == 1


def test_a_key_in_a_reply_is_taken_out(ask: Ask, wire: FakeProvider) -> None:
    wire.script = [Completion(f"your key is {KEY}", calls=(("look", {"at": KEY}),))]
    assert KEY not in ask().reply(HELLO).model_dump_json()


def test_of_a_provider_that_is_not_on_our_list_every_key_is_kept_out(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_too_long_a_prompt_is_said_to_the_agent(
    ask: Ask, wire: FakeProvider, api: str, reply: ErrorReply
) -> None:
    wire.script = [reply]
    with pytest.raises(PromptTooLong, match="takes no prompt of this length"):
        ask(api).reply(HELLO)
    assert len(wire.requests) == 1


def test_answers_that_came_to_nothing_are_paid_for(ask: Ask, wire: FakeProvider) -> None:
    wire.script = ["fine", BrokenReply("empty"), "fine"]
    model = ask()
    once, twice = model.reply(HELLO), model.reply(HELLO)
    assert twice.input_tokens == 2 * once.input_tokens and twice.dollars > once.dollars


def test_any_server_is_named_by_its_address_and_gets_no_key_of_openai(
    wire: FakeProvider, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.script = [Completion("small", calls=(("look", {"at": "x"}),))]
    wire.key = ""
    model = load_model(f"{wire.url}/v1#tiny:1b")
    assert model.price is None
    reply = model.reply(HELLO.replace(tools=(LOOK,)))
    assert (reply.text, reply.model, reply.dollars) == ("small", "tiny:1b", 0.0)
    assert KEY not in str(wire.requests[0].headers) and wire.requests[0].body["max_tokens"] == 4000
    monkeypatch.setenv(COMPATIBLE_KEY_VARIABLE, "another-key-0123456789")
    wire.script = ["x"]
    load_model(f"{wire.url}/v1#tiny:1b").reply(HELLO)
    assert wire.requests[1].headers["authorization"] == "Bearer another-key-0123456789"


def test_groq_is_reached_by_its_own_package(ask: Ask, wire: FakeProvider) -> None:
    wire.script = [error_reply(503), Completion("quick", calls=(("look", {"at": "x"}),))]
    reply = ask("groq:llama-3.3-70b-versatile").reply(HELLO.replace(tools=(LOOK,)))
    assert (reply.text, reply.calls[0].arguments, reply.retries) == ("quick", '{"at": "x"}', 1)


def test_google_is_asked_in_its_own_words(
    wire: FakeProvider, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", wire.url)
    with pytest.raises(ModelFault, match="404: unknown path"):
        Hosted("google-gla:gemini-2.5-flash", waits.patience()).reply(
            HELLO.replace(stop=("Stop:",), tools=(LOOK,))
        )
    (seen,) = wire.requests
    assert "/models/gemini-2.5-flash:streamGenerateContent" in seen.path
    assert seen.body["contents"] == [{"parts": [{"text": "hello"}], "role": "user"}]
    assert seen.body["generationConfig"]["stopSequences"] == ["Stop:"]


@pytest.mark.parametrize("name", ["mistral:mistral-large-latest", "cohere:command-a"])
def test_other_providers_are_ready_once_their_key_is_there(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROVIDERS[name.partition(":")[0]].key_variables[0], KEY)
    assert isinstance(load_model(name), Hosted)


@pytest.mark.parametrize(
    "name", sorted(set(PROVIDERS) - {"azure", "bedrock", "huggingface", "xai", "ollama", "vllm"})
)
def test_a_missing_key_is_named_before_the_run_begins(name: str) -> None:
    with pytest.raises(
        UsageError, match=rf"^{name}:any: .*\b{PROVIDERS[name].key_variables[0]}\b.* is not set$"
    ):
        load_model(f"{name}:any")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gpt-4o", "a hosted one is PROVIDER:MODEL"),
        ("test", "a hosted one is PROVIDER:MODEL"),
        ("nobody:model", "there is no provider 'nobody'; there are: openai, "),
        ("ollama:llama3", "OLLAMA_BASE_URL is not set"),
        ("http://127.0.0.1:9/v1", "http://HOST:PORT/v1#MODEL"),
        ("http://me:password@127.0.0.1:9/v1#any", "without a query or a password"),
    ],
)
def test_a_name_that_leads_nowhere_is_a_line_that_says_what_does(name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        load_model(name)


@pytest.mark.parametrize("key", ["", " ", f"{KEY}\n", "schlüssel-0123456789"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(UsageError, match="OPENAI_API_KEY is empty, or has") as raised:
        load_model("openai:gpt-4o")
    assert not key.strip() or key.strip() not in str(raised.value)


@pytest.mark.parametrize(
    ("package", "name", "install"),
    [
        ("pydantic_ai", "openai:gpt-4o", "mlagentbench[models]"),
        ("anthropic", "anthropic:claude-opus-5", "mlagentbench[models]"),
        ("boto3", "bedrock:any", "pydantic-ai-slim[bedrock]"),
        ("huggingface_hub", "huggingface:any", "pydantic-ai-slim[huggingface]"),
    ],
)
def test_a_missing_package_is_a_line_that_says_what_to_install(package: str, name: str, install: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from mlagentbench.models.base import load_model; load_model({name!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert f"needs packages that are not installed: pip install '{install}'" in done.stderr.splitlines()[-1]


def test_prices_are_known_before_the_first_call(wire: FakeProvider, waits: Waits) -> None:
    assert Hosted("openai:gpt-4o", waits.patience()).price == Price(2.5e-06, 1e-05)
    assert Hosted("openai:not-on-any-list", waits.patience()).price is None


AGENT = """
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call, Message


class Chatty(Agent):
    needs_model = True

    def run(self, env):
        while not env.done:
            said = env.ask([Message(role="user", text="what now?")]).text
            env.step(Call(action="Write File", args={"file_name": "said.txt", "content": said}))
"""


@pytest.fixture
def chatty(tmp_path: Path) -> Path:
    path = tmp_path / "chatty.py"
    path.write_text(AGENT)
    return path


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_run_asks_until_its_tokens_are_spent_and_its_folder_holds_no_key(
    cli: Callable[..., "subprocess.CompletedProcess[str]"],
    wire: FakeProvider,
    toy: Path,
    chatty: Path,
    tmp_path: Path,
) -> None:
    wire.script = [error_reply(429, retry_after="0"), *[f"thought {number}" for number in range(9)]]
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
    assert KEY.encode() not in everything(out) and KEY not in done.stdout + done.stderr


def test_a_key_that_a_server_echoes_stays_out_of_the_run_folder(
    cli: Callable[..., "subprocess.CompletedProcess[str]"],
    wire: FakeProvider,
    toy: Path,
    chatty: Path,
    tmp_path: Path,
) -> None:
    wire.script = [f"the key is {KEY}", ErrorReply(401, "bad key", echo_key=True)]
    out = tmp_path / "run"
    done = cli("run", toy, "--agent", chatty, "--model", "openai-chat:gpt-4o", "--out", out)
    result = RunFolder(out).result
    assert result and result.ending == "fault" and "check OPENAI_API_KEY" in result.note
    assert KEY.encode() not in everything(out) and KEY not in done.stdout + done.stderr


def test_dollars_are_refused_where_no_price_is_known(
    cli: Callable[..., "subprocess.CompletedProcess[str]"],
    wire: FakeProvider,
    toy: Path,
    chatty: Path,
    tmp_path: Path,
) -> None:
    model = f"{wire.url}/v1#tiny"
    done = cli("run", toy, "--agent", chatty, "--model", model, "--dollars", 1, "--out", tmp_path / "run")
    assert done.returncode == 2 and "--dollars needs a price, and none is known for http" in done.stderr
    assert not wire.requests and not (tmp_path / "run").exists()


def test_ctrl_c_ends_a_call_that_stalls_and_the_run_can_be_resumed(
    wire: FakeProvider, toy: Path, chatty: Path, tmp_path: Path, until: Callable[[Callable[[], object]], None]
) -> None:
    wire.script = [BrokenReply("stall")]
    command = [
        sys.executable,
        "-m",
        "mlagentbench",
        "run",
        toy,
        "--agent",
        chatty,
        "--model",
        "openai:gpt-4o",
    ]
    child = subprocess.Popen(
        [*map(str, command), "--out", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True
    )
    until(lambda: wire.requests or child.poll() is not None)
    os.kill(child.pid, signal.SIGINT)
    _, complaint = child.communicate(timeout=20)
    assert child.returncode == 130 and "go on with: mlagentbench resume" in complaint
    assert "Traceback" not in complaint


def test_the_list_of_models_says_how_to_name_each(
    cli: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    shown = cli("list", "models").stdout
    for form in ("scripted:FILE", "recorded:RUN", "local", "anthropic:MODEL", "http://HOST:PORT/v1#MODEL"):
        assert f"\n{form}" in shown
    assert "ANTHROPIC_API_KEY" in shown
