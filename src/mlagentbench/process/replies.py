"""What models said to an agent, read from model_calls.jsonl without reading the long prompts."""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import ModelCall
from mlagentbench.system.journal import Journal

# A quote inside a JSON string is escaped: only the field itself can look like this, and the last one is ours.
REPLY_FIELD = '"reply":{"text":'
NESTED_CALL_FIELD = '"inside":true'
MISREAD_PREFIX = fill_prompt("misread", problem="\n").partition("\n")[0]
NUDGE_PREFIX = fill_prompt("tools_nudge")
ACTION_BLOCK = re.compile(r"^\W*Action\b.*", re.DOTALL | re.MULTILINE)


class AgentReply(NamedTuple):
    """One reply: for which step, by which model, what it says, and whether it is a second try at an earlier reply."""

    step: int
    role: str
    text: str
    is_retry: bool


def read_replies(journal: Journal) -> Iterator[AgentReply]:
    """The replies that the agent itself asked for; what actions asked is no word of the agent's."""
    marks = json.dumps(MISREAD_PREFIX)[1:-1], json.dumps(NUDGE_PREFIX)[1:-1]
    for line, _ in journal.lines():
        place = line.rfind(REPLY_FIELD)
        head = line[: line.find('"prompt":')]
        if place < 0 or NESTED_CALL_FIELD in head:
            continue
        reply, _ = json.JSONDecoder().raw_decode(line, place + len('"reply":'))
        step = int(head.partition('"step":')[2].partition(",")[0])
        again = any(mark in line for mark in marks) and _was_asked_again(line)
        role = head.partition('"role":"')[2].partition('"')[0]
        yield AgentReply(step, role, reply["text"], again)


def _was_asked_again(line: str) -> bool:
    """Whether the last thing that the model was told is that its reply before was of no use."""
    messages = ModelCall.model_validate_json(line).prompt.messages
    return bool(messages) and messages[-1].text.startswith((MISREAD_PREFIX, NUDGE_PREFIX))


def strip_action(text: str) -> str:
    """What a reply says besides the action that it asks for; one that is all JSON says it in the call's thought."""
    return "" if text.lstrip()[:1] == "{" else ACTION_BLOCK.sub("", text).strip()
