"""Requests of outside programs to the model endpoint, by path, and replies of a model."""

import base64
from typing import Any

from mlagentbench.records import Reply, ToolCall

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
STATE = base64.b64encode(b'{"provider": "p", "parts": [{"thinking": "hm", "signature": "s"}]}').decode()
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
                {"role": "user", "content": [{"type": "text", "text": "read a"}]},
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
            "tool_choice": {"type": "function", "function": {"name": "read"}},
            "parallel_tool_calls": False,
            "temperature": 0.5,
            "response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}},
            "reasoning_effort": "low",
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ],
    "/v1/responses": [
        {"model": "m", "input": "hi", "instructions": "be kind", "max_output_tokens": 9},
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "read a"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [{"text": "hm"}], "encrypted_content": STATE},
                {"type": "message", "role": "assistant", "content": "so I do"},
                {"type": "function_call", "call_id": "c1", **FUNCTION_CALL},
                {"type": "function_call_output", "call_id": "c1", "output": "content of a"},
            ],
            "tools": [
                {"type": "function", "name": "read", "parameters": SCHEMA, "strict": False},
                {"type": "custom", "name": "exec", "format": {"syntax": "lark", "definition": "start: /x/"}},
                {"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": "sleep"}]},
                {"type": "apply_patch"},
            ],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "apply_patch"}]},
            "text": {"format": {"type": "json_schema", "name": "r", "schema": SCHEMA}, "verbosity": "low"},
            "reasoning": {"effort": "low"},
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
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": STATE},
                        {"type": "text", "text": "so I do"},
                        TOOL_USE,
                    ],
                },
                {"role": "user", "content": [TOOL_RESULT, {"type": "text", "text": "and now?"}]},
            ],
            "tools": [{"name": "read", "description": "reads", "input_schema": SCHEMA}],
            "tool_choice": {"type": "tool", "name": "read", "disable_parallel_tool_use": True},
            "thinking": {"type": "enabled", "budget_tokens": 2000},
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
            "stop_sequences": ["END"],
            "stream": True,
        },
    ],
    "/v1beta/models/m:streamGenerateContent": [
        {"contents": [{"parts": [{"text": "hi"}]}], "systemInstruction": {"parts": [{"text": "be kind"}]}},
        {
            "contents": [
                {"role": "user", "parts": [{"text": "read a"}]},
                {
                    "role": "model",
                    "parts": [
                        {"text": "hm", "thought": True},
                        {"functionCall": {"name": "read", "args": {"path": "a"}}, "thoughtSignature": STATE},
                    ],
                },
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"name": "read", "response": {"output": "content of a"}}}],
                },
            ],
            "tools": [{"functionDeclarations": [{"name": "read", "parameters": {"type": "OBJECT"}}]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}},
            "generationConfig": {
                "topK": 64,
                "maxOutputTokens": 9,
                "stopSequences": ["END"],
                "responseMimeType": "application/json",
                "responseSchema": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
                "thinkingConfig": {"thinkingBudget": -1},
            },
        },
    ],
}
REPLIES = [
    Reply(text="hello", model="fake", input_tokens=7, output_tokens=3),
    Reply(text="x" * 5000, calls=(ToolCall(id="c1", name="read", arguments='{"path": "a"}'),), model="fake"),
    Reply(
        calls=(ToolCall(id="", name="", arguments='{"path": '), ToolCall(id="c", name="n", arguments="[1]"))
    ),
    Reply(reasoning="hm", provider_state='{"provider": "p", "parts": []}', finish="length"),
    Reply(),
]
