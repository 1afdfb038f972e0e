"""Builds a grammar (GBNF) for replies that name one action, so that every reply is a valid action."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

# A character is at most one token, and a prompt allows 4000 tokens by default.
MAX_REPLY_CHARS = 3900
MAX_LINE_CHARS = 100  # of an entry
MAX_ENTRY_LINES = 3
MAX_SENTENCE_CHARS = 200  # of an argument that is a sentence
MAX_PATH_CHARS = 80  # of an argument that names a file
# Arguments that name a file. Without a rule of their own, a small model fills them with prose.
PATH_ARGUMENT = re.compile(r"(^|_)(name|path|source|destination)$")
SCRIPT_ARGUMENTS = {"content", "command"}  # hold whole scripts; they share the space that the rest leaves

# An entry is a line, or a line and a short list, without colons, so that a thought is never read as an
# action. In JSON a character may take two characters, and is counted as two.
_FIRST_LINE = rf"[A-Za-z] letter{{0,{MAX_LINE_CHARS - 1}}}"
_LIST_ITEM = rf'"\n" ("-" | [1-9] ".") " " letter{{1,{MAX_LINE_CHARS}}}'
COMMON_RULES = rf"""
letter ::= [ -9;-~]
text ::= {_FIRST_LINE} ({_LIST_ITEM}){{0,{MAX_ENTRY_LINES - 1}}}
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
    """A grammar for replies with these entries in this order, followed by one action with its arguments."""
    entry_rules = "".join(f'{json.dumps(entry + ": ")} text "\\n" ' for entry in entries)
    action_rules = [f"call{number}" for number in range(len(actions))]
    rules = [f'root ::= {entry_rules}"Action: " ({" | ".join(action_rules)})']
    chars_left = MAX_REPLY_CHARS - sum(len(entry) + MAX_ENTRY_CHARS for entry in entries)
    for rule, (name, arguments) in zip(action_rules, actions.items(), strict=True):
        rules += _build_action_rules(rule, name, arguments.model_json_schema(), chars_left)
    return "\n".join(rules) + COMMON_RULES


def _build_action_rules(rule: str, name: str, schema: dict[str, Any], chars_left: int) -> Iterator[str]:
    """Rules for one action: its name, and a JSON object of its arguments in order."""
    arguments: dict[str, dict[str, Any]] = schema.get("properties", {})
    scripts = SCRIPT_ARGUMENTS & arguments.keys()
    value_rules = {
        argument: RULE_BY_TYPE.get(argument_schema.get("type", ""))
        for argument, argument_schema in arguments.items()
    }
    value_rules |= {
        argument: "path"
        for argument, value_rule in value_rules.items()
        if value_rule == "short" and PATH_ARGUMENT.search(argument)
    }
    if unsupported := [argument for argument, value_rule in value_rules.items() if not value_rule]:
        raise ValueError(f"{name}: the grammar does not support the type of {', '.join(unsupported)}.")
    if scripts:
        used_chars = sum(
            len(argument) + 6 + (0 if argument in scripts else 2 * MAX_SENTENCE_CHARS)
            for argument in arguments
        )
        max_script_chars = (chars_left - used_chars - len(name) - 30) // 2 // len(scripts)
        yield f'{rule}script ::= "\\"" character{{0,{max_script_chars}}} "\\""'
        value_rules |= dict.fromkeys(scripts, f"{rule}script")
    members = {
        argument: f"{json.dumps(json.dumps(argument) + ': ')} {value_rule}"
        for argument, value_rule in value_rules.items()
    }
    required = schema.get("required", ())
    optional = [member for argument, member in members.items() if argument not in required]
    member_rule = _build_member_rule([members[argument] for argument in required], optional)
    prefix = json.dumps(f"{name}\nAction Input: {{")
    yield f'{rule} ::= {prefix} {member_rule} "}}"'


def _build_member_rule(required: Sequence[str], optional: Sequence[str]) -> str:
    """All required members and any optional ones, separated by commas."""
    if required:
        return ' ", " '.join(required) + "".join(f' (", " {member})?' for member in optional)
    alternatives = [
        _build_member_rule([member], optional[index + 1 :]) for index, member in enumerate(optional)
    ]
    return f"({' | '.join(alternatives)})?" if alternatives else ""
