"""Requests that real programs sent, shortened: what they offer and say reaches the model."""

import json
from pathlib import Path
from typing import Any

import pytest

from mlagentbench.agents.programs.preset import LOCKS_FOLDER
from mlagentbench.endpoint.base import UnsupportedRequest
from mlagentbench.endpoint.routes import find_route
from mlagentbench.records import Prompt, Reply, ToolCall

REQUESTS = Path(__file__).parent / "requests"
STATE = '{"provider":"p","parts":[]}'


def load_request(name: str) -> tuple[str, dict[str, Any]]:
    request = json.loads((REQUESTS / f"{name}.json").read_text())
    return request["path"], request["body"]


def parse(name: str) -> Prompt:
    path, body = load_request(name)
    return find_route(path).dialect.parse_request(body)


@pytest.mark.parametrize(
    ("name", "tools", "calls"),
    [
        ("claude-code", {"Bash", "Read", "Edit", "Write"}, ["Bash", "Read"]),
        ("codex", {"exec", "wait", "clock__sleep", "collaboration__spawn_agent"}, ["exec", "clock__sleep"]),
        ("gemini-cli", {"run_shell_command", "replace"}, ["run_shell_command", "list_directory"]),
        ("opencode", {"bash", "read", "apply_patch"}, ["bash", "read"]),
        ("qwen-code", {"run_shell_command", "edit"}, ["run_shell_command", "read_file"]),
        ("goose", {"shell", "edit", "todo__todo_write"}, ["shell", "tree"]),
    ],
)
def test_tools_calls_and_their_results_reach_the_model(name: str, tools: set[str], calls: list[str]) -> None:
    prompt = parse(name)
    assert tools <= {tool.name for tool in prompt.tools}
    made = [call for message in prompt.messages for call in message.calls]
    assert [call.name for call in made] == calls
    answered = [message for message in prompt.messages if message.role == "tool"]
    assert {message.answers for message in answered} == {call.id for call in made}
    assert "hello-from-" in "".join(message.text for message in answered)


def test_settings_reach_the_model() -> None:
    claude, codex, gemini = parse("claude-code"), parse("codex"), parse("gemini-cli")
    assert (claude.max_tokens, claude.sampling.effort) == (64000, "high")
    assert [message.role for message in claude.messages][:3] == ["system", "user", "system"]
    assert (codex.sampling.effort, codex.sampling.verbosity, codex.tool_choice.parallel) == (
        "low",
        "low",
        False,
    )
    assert (gemini.sampling.temperature, gemini.sampling.top_k, gemini.max_tokens) == (1, 64, None)
    assert parse("smolagents").tool_choice.mode == "required"
    router = parse("gemini-cli-router").reply_format
    assert router and router.json_schema and router.json_schema["type"] == "object"
    assert router.json_schema["properties"]["complexity_score"]["type"] == "integer"


@pytest.mark.parametrize(
    ("name", "tools", "roles", "calls"),
    [
        ("mini-swe-agent", {"bash"}, {"system", "user", "assistant", "tool"}, 1),
        ("openhands", {"terminal", "file_editor"}, {"system", "user", "assistant", "tool"}, 1),
        ("aide", {"submit_review"}, {"user"}, 0),
        ("aider", set(), {"system", "user", "assistant"}, 0),
    ],
)
def test_requests_of_the_programs_from_pypi_are_parsed(
    name: str, tools: set[str], roles: set[str], calls: int
) -> None:
    prompt = parse(name)
    assert tools <= {tool.name for tool in prompt.tools}
    assert {message.role for message in prompt.messages} == roles
    made = [call for message in prompt.messages for call in message.calls]
    answered = [message.answers for message in prompt.messages if message.role == "tool"]
    assert [call.id for call in made] == answered and len(made) == calls


def test_every_program_has_a_recorded_request() -> None:
    recorded = {path.stem for path in REQUESTS.iterdir()}
    assert {path.stem for path in LOCKS_FOLDER.iterdir()} <= recorded


def test_aide_forces_its_review_tool() -> None:
    choice = parse("aide").tool_choice
    assert (choice.mode, choice.names) == ("required", ("submit_review",))


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini-cli", "opencode"])
def test_reasoning_comes_back_with_its_state(name: str) -> None:
    (turn, *_) = [message for message in parse(name).messages if message.role == "assistant"]
    assert turn.provider_state == STATE and turn.calls
    assert turn.reasoning == ("" if name == "gemini-cli" else "let me look")  # it keeps signatures only


def test_codex_gets_its_calls_in_the_form_that_it_offered_the_tools() -> None:
    path, body = load_request("codex")
    script = ToolCall(id="c1", name="exec", arguments=json.dumps({"input": "text('hi')"}))
    sleep = ToolCall(id="c2", name="clock__sleep", arguments='{"duration_ms": 1}')
    output = find_route(path).dialect.response_body(Reply(calls=(script, sleep)), body)["output"]
    assert [(item["type"], item["name"], item.get("namespace")) for item in output] == [
        ("custom_tool_call", "exec", "functions"),
        ("function_call", "sleep", "clock"),
    ]
    assert output[0]["input"] == "text('hi')" and output[1]["arguments"] == '{"duration_ms": 1}'


def test_a_tool_that_only_a_provider_has_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedRequest, match="The tool web_search runs on a provider's servers"):
        parse("codex-gpt-5")


@pytest.mark.parametrize("prefix", ["", "/v1", "/v1beta", "/v1/v1"])
@pytest.mark.parametrize(
    ("path", "dialect", "action"),
    [
        ("/chat/completions", "Chat", "generate"),
        ("/responses", "Responses", "generate"),
        ("/messages?beta=true", "Messages", "generate"),
        ("/messages/count_tokens", "Messages", "count_tokens"),
        ("/models/m:streamGenerateContent?alt=sse", "Google", "stream"),
        ("/models/m:streamGenerateContent", "Google", "stream_array"),
        ("/models/m:generateContent?key=x", "Google", "generate"),
        ("/models/m:embedContent", "Google", ""),
        ("/embeddings", "Chat", ""),
    ],
)
def test_paths_work_with_and_without_a_version(prefix: str, path: str, dialect: str, action: str) -> None:
    route = find_route(prefix + path)
    assert (type(route.dialect).__name__, route.action) == (dialect, action)
