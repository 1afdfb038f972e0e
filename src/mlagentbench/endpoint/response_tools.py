"""The tools of the OpenAI responses API, as functions: models here know functions only.

A request may offer functions, custom tools (free text), namespaces of both, and tools that the client runs
but whose form is fixed (a shell, patches). Tools may also come as an item of the input. Each becomes a
function; a call of that function becomes an item of the kind that the program expects.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from mlagentbench.endpoint.base import Json, new_id
from mlagentbench.endpoint.custom_tools import parse_custom_tool, unwrap_input, wrap_input
from mlagentbench.endpoint.fields import (
    content_text,
    list_field,
    object_field,
    parse_tool,
    refuse_hosted_tool,
    required_name,
    text_field,
)
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.records import Message, Tool, ToolCall

DEFAULT_NAMESPACE = "functions"
STRING = {"type": "string"}


class FixedTool(NamedTuple):
    """A tool of fixed form: the field of its call item that holds the arguments, and their schema."""

    field: str
    description: str
    properties: Json
    required: list[str]
    constant: Mapping[str, object] = MappingProxyType({})


FIXED_TOOLS = {
    "local_shell": FixedTool(
        "action",
        "Runs a command in a shell on the machine.",
        {
            "command": {"type": "array", "items": STRING},
            "working_directory": STRING,
            "timeout_ms": {"type": "integer"},
        },
        ["command"],
        {"type": "exec", "env": {}},
    ),
    "shell": FixedTool(
        "action",
        "Runs shell commands on the machine.",
        {
            "commands": {"type": "array", "items": STRING},
            "timeout_ms": {"type": "integer"},
            "max_output_length": {"type": "integer"},
        },
        ["commands"],
    ),
    "apply_patch": FixedTool(
        "operation",
        "Creates, updates or deletes a file. `diff` is a diff in the V4A format; a deletion has none.",
        {
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": STRING,
            "diff": STRING,
        },
        ["type", "path"],
    ),
}
CALL_ITEMS = {f"{name}_call": name for name in FIXED_TOOLS} | {
    "function_call": "function",
    "custom_tool_call": "custom",
}
OUTPUT_ITEMS = {f"{item}_output" for item in CALL_ITEMS}


class OfferedTool(NamedTuple):
    """A tool as the program names it, and the function that the model gets."""

    kind: str
    namespace: str
    name: str
    function: Tool


def offered_tools(body: Json) -> dict[str, OfferedTool]:
    """The tools of a request by the name of their function."""
    definitions = list_field(body, "tools")
    if not isinstance(body.get("input"), str):
        for item in list_field(body, "input"):
            if item.get("type") == "additional_tools":
                definitions = [*definitions, *list_field(item, "tools")]
    return {tool.function.name: tool for tool in _parse_tools(definitions)}


def function_name(name: str, namespace: str = "") -> str:
    """The name of the function for a tool."""
    return name if namespace in ("", DEFAULT_NAMESPACE) else f"{namespace.rstrip('_')}__{name}"


def _parse_tools(definitions: Iterable[Json], namespace: str = "", about: str = "") -> Iterator[OfferedTool]:
    """The tools; those of a namespace begin their description with that of the namespace."""
    for definition in definitions:
        kind = str(definition.get("type", "function"))
        if kind == "namespace":
            tools, name = list_field(definition, "tools"), required_name(definition)
            yield from _parse_tools(tools, name, text_field(definition, "description"))
        elif kind in FIXED_TOOLS:
            fixed = FIXED_TOOLS[kind]
            schema = {"type": "object", "properties": fixed.properties, "required": fixed.required}
            function = Tool(name=kind, description=fixed.description, parameters=schema)
            yield OfferedTool(kind, "", kind, function)
        elif kind in ("function", "custom"):
            parsed = (
                parse_custom_tool(definition) if kind == "custom" else parse_tool(definition, "parameters")
            )
            description = "\n\n".join(filter(None, (about, parsed.description)))
            function = parsed.replace(name=function_name(parsed.name, namespace), description=description)
            yield OfferedTool(kind, namespace, parsed.name, function)
        else:
            raise refuse_hosted_tool(kind)


def parse_call_item(item: Json) -> ToolCall:
    """The call in an item of the input."""
    kind = CALL_ITEMS[str(item["type"])]
    if kind in FIXED_TOOLS:
        fixed = FIXED_TOOLS[kind]
        action = {name: value for name, value in object_field(item, fixed.field).items() if value is not None}
        arguments = {name: value for name, value in action.items() if fixed.constant.get(name) != value}
        return ToolCall(id=text_field(item, "call_id"), name=kind, arguments=json.dumps(arguments))
    name = function_name(text_field(item, "name"), text_field(item, "namespace"))
    custom = kind == "custom"
    arguments_text = wrap_input(text_field(item, "input")) if custom else text_field(item, "arguments")
    return ToolCall(id=text_field(item, "call_id"), name=name, arguments=arguments_text)


def parse_output_item(item: Json) -> Message:
    """The result of a call in an item of the input."""
    output = item.get("output")
    is_text = isinstance(output, str | None) or (
        isinstance(output, list) and all(isinstance(part, dict) and "type" in part for part in output)
    )
    text = content_text(output) if is_text else json.dumps(output)
    failed = item.get("status") == "failed"
    return Message(role="tool", text=text, answers=text_field(item, "call_id"), failed=failed)


def call_item(call: ToolCall, tools: dict[str, OfferedTool]) -> Json:
    """The item for a call of the model."""
    tool = tools.get(call.name)
    if tool is None or tool.kind == "function":
        item = _item("function_call", "fc_", call) | {"arguments": call.arguments}
    elif tool.kind == "custom":
        item = _item("custom_tool_call", "ctc_", call) | {"input": unwrap_input(call.arguments)}
    else:
        fixed = FIXED_TOOLS[tool.kind]
        try:
            arguments = parse_object(call.arguments)
        except UnreadableObject:
            arguments = {"arguments": call.arguments}
        return _item(f"{tool.kind}_call", "call_", call) | {fixed.field: {**fixed.constant, **arguments}}
    item["name"] = tool.name if tool else call.name
    return item | ({"namespace": tool.namespace} if tool and tool.namespace else {})


def _item(item_type: str, prefix: str, call: ToolCall) -> Json:
    return {"type": item_type, "id": new_id(prefix), "status": "completed", "call_id": call.id}
