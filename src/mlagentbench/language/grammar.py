"""A grammar (GBNF) for replies that name one action: a model bound by it says nothing that cannot be done."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

MAX_REPLY_CHARS = (
    3900  # characters of a reply: each is a token at worst, and a prompt allows 4000 unless it says otherwise
)
MAX_LINE_CHARS, MAX_ENTRY_LINES = 100, 3  # characters of a line of an entry, and lines
MAX_SENTENCE_CHARS, MAX_PATH_CHARS = (
    200,
    80,
)  # characters of an argument that is a sentence, and of one that names a file
PATH_ARGUMENT = re.compile(
    r"(^|_)(name|path|source|destination)$"
)  # arguments that name one; a small model else tells a story
SCRIPT_ARGUMENTS = {
    "content",
    "command",
}  # arguments that hold whole scripts; they share what the rest leaves

# An entry is a line, or a line and a short list, and has no colon in it: whoever reads the reply cannot take a thought
# for an action. In JSON, a character may be written as two, and is allowed for as two.
COMMON_RULES = rf"""
letter ::= [ -9;-~]
text ::= [A-Za-z] letter{{0,{MAX_LINE_CHARS - 1}}} ("\n" ("-" | [1-9] ".") " " letter{{1,{MAX_LINE_CHARS}}}){{0,{MAX_ENTRY_LINES - 1}}}
character ::= [ !#-\x5B\x5D-~] | "\\" ["\\nt]
short ::= "\"" character{{0,{MAX_SENTENCE_CHARS}}} "\""
path ::= "\"" [A-Za-z0-9_./-]{{1,{MAX_PATH_CHARS}}} "\""
integer ::= "0" | "-"? [1-9] [0-9]{{0,8}}
number ::= integer ("." [0-9]{{1,9}})?
boolean ::= "true" | "false"
"""
RULE_BY_TYPE = {"string": "short", "integer": "integer", "number": "number", "boolean": "boolean"}
MAX_ENTRY_CHARS = MAX_ENTRY_LINES * (MAX_LINE_CHARS + 4)


def build_reply_grammar(entries: Sequence[str], actions: Mapping[str, type[BaseModel]]) -> str:
    """Replies that have these entries in this order, and then one of the actions with its arguments, and no more."""
    told = "".join(f'{json.dumps(entry + ": ")} text "\\n" ' for entry in entries)
    calls = [f"call{number}" for number in range(len(actions))]
    rules = [f'root ::= {told}"Action: " ({" | ".join(calls)})']
    room = MAX_REPLY_CHARS - sum(len(entry) + MAX_ENTRY_CHARS for entry in entries)
    for call, (name, arguments) in zip(calls, actions.items(), strict=True):
        rules += _build_action_rules(call, name, arguments.model_json_schema(), room)
    return "\n".join(rules) + COMMON_RULES


def _build_action_rules(rule: str, name: str, schema: dict[str, Any], room: int) -> Iterator[str]:
    """The rules for one action: its name, and a JSON object of its arguments in their order."""
    arguments: dict[str, dict[str, Any]] = schema.get("properties", {})
    scripts = SCRIPT_ARGUMENTS & arguments.keys()
    kinds = {argument: RULE_BY_TYPE.get(about.get("type", "")) for argument, about in arguments.items()}
    kinds |= {
        argument: "path"
        for argument, kind in kinds.items()
        if kind == "short" and PATH_ARGUMENT.search(argument)
    }
    if unknown := [argument for argument, kind in kinds.items() if not kind]:
        raise ValueError(f"{name}: the grammar knows no form for {', '.join(unknown)}")
    if scripts:
        taken = sum(
            len(argument) + 6 + (0 if argument in scripts else 2 * MAX_SENTENCE_CHARS)
            for argument in arguments
        )
        most = (room - taken - len(name) - 30) // 2 // len(scripts)
        yield f'{rule}script ::= "\\"" character{{0,{most}}} "\\""'
        kinds |= dict.fromkeys(scripts, f"{rule}script")
    members = {
        argument: f"{json.dumps(json.dumps(argument) + ': ')} {kind}" for argument, kind in kinds.items()
    }
    needed = schema.get("required", ())
    optional = [member for argument, member in members.items() if argument not in needed]
    whole = _build_member_rule([members[argument] for argument in needed], optional)
    begin = json.dumps(f"{name}\nAction Input: {{")
    yield f'{rule} ::= {begin} {whole} "}}"'


def _build_member_rule(required: Sequence[str], optional: Sequence[str]) -> str:
    """All that is required, and any of what is not, with commas between."""
    if required:
        return ' ", " '.join(required) + "".join(f' (", " {each})?' for each in optional)
    begun = [_build_member_rule([each], optional[place + 1 :]) for place, each in enumerate(optional)]
    return f"({' | '.join(begun)})?" if begun else ""
