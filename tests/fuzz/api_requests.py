"""Requests of outside programs to the model endpoint, by path, and replies of a model."""

from typing import Any

from mlagentbench.records import Reply, ToolCall

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION_CALL = {"name": "read", "arguments": '{"path": "a"}'}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}
TOOL_RESULT = {
    "type": "tool_result",
    "tool_use_id": "c1",
    "content": [{"type": "text", "text": "content of a"}],
}
REQUESTS: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stop": "END", "max_tokens": 9},
        {
            "messages": [
                {"role": "developer", "content": "be kind"},
                {"role": "user", "content": [{"type": "text", "text": "read a"}, {"type": "image_url"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c1", "function": FUNCTION_CALL}],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "content of a"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "read", "description": "reads", "parameters": SCHEMA},
                }
            ],
            "stop": ["END", "STOP"],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ],
    "/v1/responses": [
        {"model": "m", "input": "hi", "instructions": "be kind", "max_output_tokens": 9},
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "read a"}]},
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "message", "role": "assistant", "content": "so I do"},
                {"type": "function_call", "call_id": "c1", **FUNCTION_CALL},
                {"type": "function_call_output", "call_id": "c1", "output": "content of a"},
            ],
            "tools": [{"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}],
            "stream": True,
        },
    ],
    "/v1/messages": [
        {"model": "m", "max_tokens": 9, "system": "be kind", "messages": [{"role": "user", "content": "hi"}]},
        {
            "max_tokens": 5,
            "system": [{"type": "text", "text": "be kind"}],
            "messages": [
                {"role": "user", "content": "read a"},
                {
                    "role": "assistant",
                    "content": [{"type": "thinking"}, {"type": "text", "text": "so I do"}, TOOL_USE],
                },
                {"role": "user", "content": [TOOL_RESULT, {"type": "text", "text": "and now?"}]},
            ],
            "tools": [{"name": "read", "description": "reads", "input_schema": SCHEMA}],
            "stop_sequences": ["END"],
            "stream": True,
        },
    ],
}
REPLIES = [
    Reply(text="hello", model="fake", input_tokens=7, output_tokens=3),
    Reply(text="x" * 5000, calls=(ToolCall(id="c1", name="read", arguments='{"path": "a"}'),), model="fake"),
    Reply(
        calls=(ToolCall(id="", name="", arguments='{"path": '), ToolCall(id="c", name="n", arguments="[1]"))
    ),
    Reply(),
]
