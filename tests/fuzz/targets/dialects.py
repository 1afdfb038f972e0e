"""Questions of outside programs in the three dialects, and answers to them, without the server."""

import json
from pathlib import Path
from random import Random

from mutation import dumped, grafted
from questions import ANSWERS, QUESTIONS

from mlagentbench.endpoint.base import MalformedRequest, parse_body
from mlagentbench.endpoint.server import DIALECTS
from mlagentbench.records import Prompt

RAISES = (MalformedRequest,)
WEIGHT, SHORT = 120, 600
MAKERS = {path: grafted(bodies) for path, bodies in QUESTIONS.items()}
CHAT, TALK = "/v1/chat/completions", [{"role": "user", "content": "hi"}]
FOUND = [
    (CHAT, dumped({"messages": TALK, **more}), 0)
    for more in (
        {"stop": 5},
        {"stop": ["\ud800"]},
        {"stream_options": "yes"},
        {"tools": [{"function": "read"}]},
        {"tools": [{"function": {"name": "read", "parameters": []}}]},
        {"tools": [{"function": {"name": "read", "parameters": {"a": "\ud800"}}}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": "read"}]}]},
    )
] + [
    (
        CHAT,
        b'{"messages": [{"role": "user"}], "tools": [{"function": {"name": "a", "parameters": {"a": %s}}}]}'
        % deep,
        0,
    )
    for deep in (b"[" * 300 + b"]" * 300,)
]


def make(random: Random) -> tuple[str, bytes, int]:
    path = random.choice([*MAKERS])
    return path, dumped(MAKERS[path](random)), random.randrange(len(ANSWERS))


def attempt(case: tuple[str, bytes, int], room: Path) -> None:
    path, data, answer = case
    dialect, body, reply = DIALECTS[path], parse_body(data), ANSWERS[answer]
    Prompt.model_validate_json(dialect.parse_request(body).model_dump_json())
    assert json.dumps(dialect.response_body(reply))
    assert all(dialect.encode_event(event) for event in dialect.stream_events(reply, body))
