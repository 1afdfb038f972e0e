"""What models say: the action that they ask for, and the script that they answer with."""

import json
from contextlib import suppress
from pathlib import Path

from mutation import mutated

from mlagentbench.actions.base import load_actions
from mlagentbench.errors import ActionError
from mlagentbench.language.replies import UnreadableReply, extract_code, parse_reply

RAISES = (UnreadableReply,)
WEIGHT, SHORT = 160, 400
ACTIONS = load_actions(models=True)
WRITTEN = json.dumps({"file_name": "train.py", "content": 'print("Action: {}")\n'})
SEEDS = [
    f"Thought: look\nAction: Write File\nAction Input: {WRITTEN}".encode(),
    b'**Thought**: so\n### Action: `inspect_script_lines`\nAction_Input:\n```json\n{"script_name": "a.py"}\n```\n',
    b'Thought: x\nAction: Edit Script (AI)\nAction Input: {script_name: a, edit_instruction: """b""", save_name: c}',
    b"Thought: done\nAction: Final Answer\nAction Input: it is better\nObservation: made up\nThought: well",
    b"Here:\n```python\nx = 1\n```\nand\n````\ny = '''\n```\n'''\n````\n",
]
WORDS = [
    *(
        b"Thought:",
        b"Action:",
        b"Action Input:",
        b"Observation:",
        b"\nAction: ",
        b"**",
        b"```",
        b"```python\n",
        b"~~~",
    ),
    *(
        b"\n",
        b"\n\n\n",
        b" ",
        b"> 1. ",
        b"{",
        b"}",
        b'"',
        b"'",
        b":",
        b",",
        b"[",
        b"//",
        b"/*",
        b"#",
        b'"""',
        b"\\u",
    ),
]

FOUND = [b"```x\n" * 20_000, b"Action:\n" * 12_000]

make = mutated(SEEDS, WORDS)


def attempt(case: bytes, room: Path) -> None:
    said = case.decode("utf-8", "replace")
    with suppress(ActionError):
        assert extract_code(said)
    call, _ = parse_reply(said, ACTIONS, ["Thought"])
    assert call.action in ACTIONS
