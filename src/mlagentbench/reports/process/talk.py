"""What models said to an agent, read from model_calls.jsonl without reading the long prompts."""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from mlagentbench.journal import Journal
from mlagentbench.language.prompts import fill
from mlagentbench.records import ModelCall

# A quote inside a JSON string is escaped: only the field itself can look like this, and the last one is ours.
REPLY = '"reply":{"text":'
ASIDE = '"inside":true'
MISREAD = fill("misread", problem="\n").partition("\n")[0]
NUDGE = fill("tools_nudge")
ACTION = re.compile(r"^\W*Action\b.*", re.DOTALL | re.MULTILINE)


class Said(NamedTuple):
    """One reply: for which step, by which model, what it says, and whether it is a second try at an earlier reply."""

    step: int
    role: str
    text: str
    again: bool


def said(journal: Journal) -> Iterator[Said]:
    """The replies that the agent itself asked for; what actions asked is no word of the agent's."""
    marks = json.dumps(MISREAD)[1:-1], json.dumps(NUDGE)[1:-1]
    for line, _ in journal.lines():
        place = line.rfind(REPLY)
        head = line[: line.find('"prompt":')]
        if place < 0 or ASIDE in head:
            continue
        reply, _ = json.JSONDecoder().raw_decode(line, place + len('"reply":'))
        step = int(head.partition('"step":')[2].partition(",")[0])
        again = any(mark in line for mark in marks) and _asked_again(line)
        role = head.partition('"role":"')[2].partition('"')[0]
        yield Said(step, role, reply["text"], again)


def _asked_again(line: str) -> bool:
    """Whether the last thing that the model was told is that its reply before was of no use."""
    messages = ModelCall.model_validate_json(line).prompt.messages
    return bool(messages) and messages[-1].text.startswith((MISREAD, NUDGE))


def spoken(text: str) -> str:
    """What a reply says besides the action that it asks for; one that is all JSON says it in the call's thought."""
    return "" if text.lstrip()[:1] == "{" else ACTION.sub("", text).strip()
