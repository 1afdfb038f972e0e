"""Custom tools, whose input is free text, as functions with one argument: models here call functions only."""

import json

from mlagentbench.endpoint.base import Json
from mlagentbench.endpoint.fields import object_field, required_name, text_field
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.records import Tool

INPUT = "input"


def parse_custom_tool(definition: Json) -> Tool:
    """The function for a custom tool; a grammar of its input becomes part of the description."""
    description = text_field(definition, "description")
    grammar = object_field(definition, "format")
    if grammar.get("definition"):
        syntax = text_field(grammar, "syntax") or "lark"
        description += f"\n\nThe input must match this {syntax} grammar:\n{grammar['definition']}"
    properties = {INPUT: {"type": "string", "description": "The whole input of the tool, as plain text."}}
    schema = {"type": "object", "properties": properties, "required": [INPUT], "additionalProperties": False}
    return Tool(name=required_name(definition), description=description.strip(), parameters=schema)


def wrap_input(text: str) -> str:
    """The arguments of the function for this input."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def unwrap_input(arguments: str) -> str:
    """The input in the arguments of the function; the arguments themselves if they have another form."""
    try:
        value = parse_object(arguments).get(INPUT)
    except UnreadableObject:
        return arguments
    return value if isinstance(value, str) else arguments
