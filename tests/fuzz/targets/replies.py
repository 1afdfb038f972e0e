"""Replies of models: the requested action, and the script in an answer."""

import json
from contextlib import suppress
from pathlib import Path

from mutation import mutate_bytes

from mlagentbench.actions.base import load_actions
from mlagentbench.errors import ActionError
from mlagentbench.language.replies import UnreadableReply, extract_code, parse_reply

EXPECTED_ERRORS = (UnreadableReply,)
CASES_PER_1000, SHORT_CASES = 130, 400
ACTIONS = load_actions(models=True)
ACTION_INPUT = json.dumps({"file_name": "train.py", "content": 'print("Action: {}")\n'})
SEEDS = [
    f"Thought: look\nAction: Write File\nAction Input: {ACTION_INPUT}".encode(),
    b"**Thought**: so\n### Action: `inspect_script_lines`\n"
    b'Action_Input:\n```json\n{"script_name": "a.py"}\n```\n',
    b"Thought: x\nAction: Edit Script (AI)\n"
    b'Action Input: {script_name: a, edit_instruction: """b""", save_name: c}',
    b"Thought: done\nAction: Final Answer\nAction Input: it is better\nObservation: made up\nThought: well",
    b"Here:\n```python\nx = 1\n```\nand\n````\ny = '''\n```\n'''\n````\n",
]
TOKENS = [
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

REGRESSION_CASES = [b"```x\n" * 20_000, b"Action:\n" * 12_000]

make_case = mutate_bytes(SEEDS, TOKENS)


def run_case(case: bytes, folder: Path) -> None:
    text = case.decode("utf-8", "replace")
    with suppress(ActionError):
        assert extract_code(text)
    call, _ = parse_reply(text, ACTIONS, ["Thought"])
    assert call.action in ACTIONS
