"""Writes prompts as requests of the four APIs, as clients do."""

import base64
import json
from typing import Any

from mlagentbench.records import Message, Prompt, Tool

Json = dict[str, Any]
SAMPLING = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")


def token(state: str) -> str:
    return base64.b64encode(state.encode()).decode()


def drop_unset(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def encode_chat(prompt: Prompt) -> Json:
    choice, sampling = prompt.tool_choice, prompt.sampling
    named_tools = [{"type": "function", "function": {"name": name}} for name in choice.names]
    allowed = {"mode": choice.mode, "tools": named_tools}
    named: object = {"type": "allowed_tools", "allowed_tools": allowed}
    body: Json = {
        "messages": [_chat_message(message) for message in prompt.messages],
        "stop": list(prompt.stop),
        "tools": [
            {"type": "function", "function": {**_tool(tool, "parameters"), "strict": tool.strict}}
            for tool in prompt.tools
        ],
        "tool_choice": named if choice.names else choice.mode,
        "parallel_tool_calls": choice.parallel,
        "max_completion_tokens": prompt.max_tokens,
        "reasoning_effort": sampling.effort,
        "verbosity": sampling.verbosity,
        **{name: getattr(sampling, name) for name in SAMPLING},
    }
    if prompt.reply_format:
        schema = drop_unset({**prompt.reply_format.model_dump(exclude={"json_schema"})})
        schema["schema"] = prompt.reply_format.json_schema
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return drop_unset(body)


def _chat_message(message: Message) -> Json:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]
    details = [{"type": "reasoning.encrypted", "data": token(message.provider_state)}]
    return {
        "role": message.role,
        "content": message.text,
        **drop_unset({"tool_calls": calls, "tool_call_id": message.answers}),
        **drop_unset({"reasoning_content": message.reasoning}),
        **({"reasoning_details": details} if message.provider_state else {}),
    }


def encode_responses(prompt: Prompt) -> Json:
    choice = prompt.tool_choice
    names = [{"type": "function", "name": name} for name in choice.names]
    body: Json = {
        "input": [item for message in prompt.messages for item in _items(message)],
        "tools": [
            {"type": "function", **_tool(tool, "parameters"), "strict": tool.strict} for tool in prompt.tools
        ],
        "tool_choice": {"type": "allowed_tools", "mode": choice.mode, "tools": names}
        if names
        else choice.mode,
        "parallel_tool_calls": choice.parallel,
        "max_output_tokens": prompt.max_tokens,
        "temperature": prompt.sampling.temperature,
        "top_p": prompt.sampling.top_p,
        "reasoning": drop_unset({"effort": prompt.sampling.effort}),
        "text": drop_unset({"verbosity": prompt.sampling.verbosity}),
    }
    if prompt.reply_format:
        schema = drop_unset(prompt.reply_format.model_dump(exclude={"json_schema"}))
        schema["schema"] = prompt.reply_format.json_schema
        body["text"]["format"] = {"type": "json_schema", **schema}
    return drop_unset(body)


def _items(message: Message) -> list[Json]:
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": message.answers, "output": message.text}]
    items: list[Json] = []
    if message.reasoning or message.provider_state:
        summary = [{"type": "summary_text", "text": message.reasoning}] if message.reasoning else []
        content = token(message.provider_state)
        items.append({"type": "reasoning", "summary": summary, "encrypted_content": content})
    if message.text or message.role != "assistant":
        items.append({"type": "message", "role": message.role, "content": message.text})
    for call in message.calls:
        named = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        items.append({"type": "function_call", **named})
    return items


def encode_messages(prompt: Prompt) -> Json:
    choice = prompt.tool_choice
    kinds = {"auto": "auto", "required": "tool" if choice.names else "any", "none": "none"}
    body: Json = {
        "messages": [
            {"role": "user" if message.role == "tool" else message.role, "content": _blocks(message)}
            for message in prompt.messages
        ],
        "stop_sequences": list(prompt.stop),
        "tools": [{**_tool(tool, "input_schema"), "strict": tool.strict} for tool in prompt.tools],
        "tool_choice": drop_unset(
            {
                "type": kinds[choice.mode],
                "name": choice.names[0] if choice.names else "",
                "disable_parallel_tool_use": None if choice.parallel is None else not choice.parallel,
            }
        ),
        "max_tokens": prompt.max_tokens,
        "output_config": drop_unset({"effort": prompt.sampling.effort}),
        **{name: getattr(prompt.sampling, name) for name in ("temperature", "top_p", "top_k")},
    }
    if prompt.reply_format:
        body["output_config"]["format"] = {"type": "json_schema", "schema": prompt.reply_format.json_schema}
    return drop_unset(body)


def _blocks(message: Message) -> list[Json]:
    if message.role == "tool":
        block = {"type": "tool_result", "tool_use_id": message.answers, "content": message.text}
        return [{**block, "is_error": message.failed}]
    blocks: list[Json] = []
    if message.reasoning:
        state = token(message.provider_state)
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": state})
    elif message.provider_state:
        blocks.append({"type": "redacted_thinking", "data": token(message.provider_state)})
    if message.text or message.role != "assistant":
        blocks.append({"type": "text", "text": message.text})
    for call in message.calls:
        arguments = json.loads(call.arguments)
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return blocks


def encode_google(prompt: Prompt) -> Json:
    system = [message.text for message in prompt.messages if message.role == "system"]
    names = {call.id: call.name for message in prompt.messages for call in message.calls}
    modes = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
    calling = {"mode": modes[prompt.tool_choice.mode], "allowedFunctionNames": list(prompt.tool_choice.names)}
    sampling = prompt.sampling
    config = {
        "stopSequences": list(prompt.stop),
        "maxOutputTokens": prompt.max_tokens,
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k,
        "seed": sampling.seed,
        "presencePenalty": sampling.presence_penalty,
        "frequencyPenalty": sampling.frequency_penalty,
        "thinkingConfig": drop_unset({"thinkingLevel": sampling.effort.upper()}),
        "responseJsonSchema": prompt.reply_format and prompt.reply_format.json_schema,
    }
    contents = [
        {"role": "model" if message.role == "assistant" else "user", "parts": _parts(message, names)}
        for message in prompt.messages
        if message.role != "system"
    ]
    declarations = [_tool(tool, "parametersJsonSchema") for tool in prompt.tools]
    return drop_unset(
        {
            "contents": contents,
            "systemInstruction": drop_unset({"parts": [{"text": text} for text in system]}),
            "tools": [{"functionDeclarations": declarations}] if declarations else [],
            "toolConfig": {"functionCallingConfig": calling},
            "generationConfig": drop_unset(config),
        }
    )


def _parts(message: Message, names: dict[str, str]) -> list[Json]:
    if message.role == "tool":
        response = {
            "id": message.answers,
            "name": names[message.answers],
            "response": {"output": message.text},
        }
        return [{"functionResponse": response}]
    parts: list[Json] = [{"text": message.reasoning, "thought": True}] if message.reasoning else []
    if message.text or message.role != "assistant":
        parts.append({"text": message.text})
    parts += [
        {"functionCall": {"id": call.id, "name": call.name, "args": json.loads(call.arguments)}}
        for call in message.calls
    ]
    if message.provider_state:
        parts.append({"thought": True, "thoughtSignature": token(message.provider_state)})
    return parts


def _tool(tool: Tool, schema_field: str) -> Json:
    return {"name": tool.name, "description": tool.description, schema_field: tool.parameters}
