"""Reads the model replies to an agent from model_calls.jsonl without parsing the long prompts."""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import ModelCall
from mlagentbench.system.journal import Journal

# Quotes inside JSON strings are escaped, so only a field matches, and the last match is the top-level field.
REPLY_FIELD = '"reply":{"text":'
NESTED_CALL_FIELD = '"inside":true'
# How a request for another reply starts. Runs of earlier versions contain the earlier wording.
RETRY_PREFIXES = (
    fill_prompt("misread", problem="\n").partition("\n")[0],
    fill_prompt("tools_nudge"),
    "That reply could not be understood: ",
    "You called no tool. Call one; call final_answer when there is nothing left to try.",
)
ACTION_BLOCK = re.compile(r"^\W*Action\b.*", re.DOTALL | re.MULTILINE)


class AgentReply(NamedTuple):
    """One reply: its step, the role of the model, its text, and whether it replaces an unusable reply."""

    step: int
    role: str
    text: str
    is_retry: bool


def read_replies(journal: Journal) -> Iterator[AgentReply]:
    """The replies to calls by the agent itself, without those to calls by actions."""
    escaped_prefixes = [json.dumps(prefix)[1:-1] for prefix in RETRY_PREFIXES]
    for line, _ in journal.lines():
        start = line.rfind(REPLY_FIELD)
        head = line[: line.find('"prompt":')]
        if start < 0 or NESTED_CALL_FIELD in head:
            continue
        reply, _ = json.JSONDecoder().raw_decode(line, start + len('"reply":'))
        step = int(head.partition('"step":')[2].partition(",")[0])
        is_retry = any(prefix in line for prefix in escaped_prefixes) and _was_asked_again(line)
        role = head.partition('"role":"')[2].partition('"')[0]
        yield AgentReply(step, role, reply["text"], is_retry)


def _was_asked_again(line: str) -> bool:
    """Whether the last message of the prompt says that the previous reply was unusable."""
    messages = ModelCall.model_validate_json(line).prompt.messages
    return bool(messages) and messages[-1].text.startswith(RETRY_PREFIXES)


def strip_action(text: str) -> str:
    """The text of a reply before its action; empty for a JSON reply, which has its text in the thought."""
    return "" if text.lstrip()[:1] == "{" else ACTION_BLOCK.sub("", text).strip()
