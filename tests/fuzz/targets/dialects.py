"""Requests of outside programs in the four API dialects, and responses, without the server."""

import json
from pathlib import Path
from random import Random

from api_requests import REPLIES, REQUESTS
from mutation import dump_json, mutate_json

from mlagentbench.endpoint.base import MalformedRequest
from mlagentbench.endpoint.fields import parse_body
from mlagentbench.endpoint.routes import find_route
from mlagentbench.records import Prompt

EXPECTED_ERRORS = (MalformedRequest,)
CASES_PER_1000, SHORT_CASES = 120, 600
MAKERS = {path: mutate_json(bodies) for path, bodies in REQUESTS.items()}
CHAT, MESSAGES = "/v1/chat/completions", [{"role": "user", "content": "hi"}]
REGRESSION_CASES = [
    (CHAT, dump_json({"messages": MESSAGES, **more}), 0)
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
        % nested,
        0,
    )
    for nested in (b"[" * 300 + b"]" * 300,)
]


def make_case(random: Random) -> tuple[str, bytes, int]:
    path = random.choice([*MAKERS])
    return path, dump_json(MAKERS[path](random)), random.randrange(len(REPLIES))


def run_case(case: tuple[str, bytes, int], folder: Path) -> None:
    path, data, reply_index = case
    dialect, body, reply = find_route(path).dialect, parse_body(data), REPLIES[reply_index]
    Prompt.model_validate_json(dialect.parse_request(body).model_dump_json())
    assert json.dumps(dialect.response_body(reply, body))
    assert all(dialect.encode_event(event) for event in dialect.stream_events(reply, body))
