from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagentbench.actions.base import load_actions
from mlagentbench.errors import ActionError
from mlagentbench.language.replies import UnreadableReply, extract_code, parse_reply, split_entries

ACTIONS = load_actions(models=True)
EXPECTED_ARGUMENTS = {"script_name": "train.py", "start_line_number": 3, "end_line_number": 9}
REPLY = """Thought: look at the loop
Action: Inspect Script Lines
Action Input: {"script_name": "train.py", "start_line_number": 3, "end_line_number": 9}"""
SPELLINGS: dict[str, Callable[[str], str]] = {
    "as required": lambda text: text,
    "bold": lambda text: text.replace("Action:", "**Action:**").replace("Thought:", "**Thought**:"),
    "headings": lambda text: text.replace("Action", "### Action").replace("Thought", "## Thought"),
    "a numbered list": lambda text: "\n".join(f"{n}. {line}" for n, line in enumerate(text.splitlines(), 1)),
    "lower case": lambda text: text.replace("Action Input", "action input").replace("Action:", "action:"),
    "an underscore": lambda text: text.replace("Action Input", "Action_Input"),
    "blank lines": lambda text: text.replace("\n", "\n\n\n"),
    "the value on the next line": lambda text: text.replace("Action: ", "Action:\n  ").replace(
        "Input: ", "Input:\n\n"
    ),
    "quotes": lambda text: text.replace("Inspect Script Lines", '"Inspect Script Lines"'),
    "backticks": lambda text: text.replace("Inspect Script Lines", "`inspect_script_lines`"),
    "a period": lambda text: text.replace("Script Lines", "Script Lines."),
    "brackets": lambda text: text.replace("Inspect Script Lines", "[Inspect Script Lines]"),
    "a fence": lambda text: text.replace("Input: ", "Input:\n```json\n") + "\n```",
    "a made-up observation": lambda text: (
        text + "\nObservation: 9 lines\nThought: well\nAction: Final Answer"
    ),
    "a greeting": lambda text: "Certainly! Here is my next step.\n\n" + text + "\n\nI hope that this helps.",
    "windows line endings": lambda text: text.replace("\n", "\r\n"),
    "other names for arguments": lambda text: text.replace("script_name", "Script Name"),
    "a wide colon": lambda text: text.replace("Action:", "Action："),
    "numbers as text": lambda text: text.replace("3,", '"3",'),
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_an_action_is_understood_in_any_spelling(spelling: Callable[[str], str]) -> None:
    call, entries = parse_reply(spelling(REPLY), ACTIONS, ["Thought"])
    assert call.action == "Inspect Script Lines"
    assert ACTIONS[call.action].arguments.model_validate(call.args).model_dump() == EXPECTED_ARGUMENTS
    assert call.thought == entries["Thought"] == "look at the loop"


def test_entries_may_have_several_lines_and_mention_actions() -> None:
    text = (
        "Reflection: I saw\nan error.\nThought: The next action: wait\n"
        "Action: Final Answer\nAction Input: done"
    )
    call, entries = parse_reply(text, ACTIONS, ["Reflection"])
    assert (entries["Reflection"], call.args) == ("I saw\nan error.", {"final_answer": "done"})


def test_a_script_argument_may_contain_anything() -> None:
    script = 'print("Action: no")\n# Thought: maybe\nx = {"a": 1}\n'
    text = f'Action: Write File\nAction Input: {{"file_name": "a.py", "content": """{script}"""}}'
    assert parse_reply(text, ACTIONS)[0].args == {"file_name": "a.py", "content": script}


@pytest.mark.parametrize("name", ["Edit Script", "edit script (ai)", "Edit Script AI", "Edit_Script(AI)"])
def test_a_missing_ai_suffix_is_accepted(name: str) -> None:
    text = f'Action: {name}\nAction Input: {{"script_name": "a", "edit_instruction": "b", "save_name": "c"}}'
    assert parse_reply(text, ACTIONS)[0].action == "Edit Script (AI)"


@pytest.mark.parametrize(
    "text",
    ["train.py", '"train.py"', "`train.py`", "{train.py}", "script_name: train.py", "```\ntrain.py\n```"],
)
def test_a_single_argument_may_be_given_without_its_name(text: str) -> None:
    with suppress(UnreadableReply):
        call, _ = parse_reply(f"Action: Execute Script\nAction Input: {text}", ACTIONS)
        assert "train.py" in call.args["script_name"]


UNREADABLE = {
    "nothing": ("", "has no Thought and no Action"),
    "no action": ("Thought: hm", "has no Action"),
    "no thought": ("Action: List Files\nAction Input: {}", "has no Thought"),
    "an unknown action": (
        "Thought: hm\nAction: Dance\nAction Input: {}",
        "no action 'Dance'. Available actions: Append File",
    ),
    "no arguments": ("Thought: hm\nAction: Copy File", "cannot be parsed: it contains no {"),
    "half an object": (
        "Thought: hm\nAction: Copy File\nAction Input: {:}",
        'must be a JSON object: {"source"',
    ),
}


@pytest.mark.parametrize(("text", "message"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_reply_is_answered_with_the_required_format(text: str, message: str) -> None:
    with pytest.raises(UnreadableReply) as caught:
        parse_reply(text, ACTIONS, ["Thought"])
    assert message in str(caught.value)


WORDS = [
    "Thought:",
    "Action:",
    "Action Input:",
    "Observation:",
    "Write File",
    "{",
    "}",
    '"',
    "content",
    "\n",
    "```",
    ":",
    ",",
    "a",
]


@settings(max_examples=500, deadline=None)
@given(text=st.text(max_size=100) | st.lists(st.sampled_from(WORDS)).map("".join))
def test_no_reply_raises_another_exception(text: str) -> None:
    with suppress(UnreadableReply):
        call, _ = parse_reply(text, ACTIONS, ["Thought"])
        assert call.action in ACTIONS


names = st.sampled_from(["a.py", "data/b c.txt", "é.md"])
contents = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"], include_characters="\n\t"), max_size=80
)


@settings(max_examples=200, deadline=None)
@given(name=names, content=contents, thought=st.sampled_from(["go", "two\nlines", "so: {}"]))
def test_arguments_as_json_round_trip(name: str, content: str, thought: str) -> None:
    import json

    args: dict[str, Any] = {"file_name": name, "content": content}
    text = f"Thought: {thought}\nAction: Write File\nAction Input: {json.dumps(args)}"
    assert parse_reply(text, ACTIONS, ["Thought"])[0].args == args


def test_the_first_of_several_entries_with_one_name_counts() -> None:
    assert split_entries("Action: a\nAction: b", ["Action"]) == {"Action": "a"}


def test_code_is_the_longest_block_or_the_whole_answer() -> None:
    assert extract_code("Here:\n```python\nx = 1\n```\nDone.") == "x = 1\n"
    assert extract_code("```\na\n```\n````\nb = '''\n```\n'''\n````") == "b = '''\n```\n'''\n"
    assert extract_code("x = 1") == "x = 1\n"
    assert (
        extract_code("```python\nx = 1\n````\ny = 2\n````") == "y = 2\n"
    )  # of two opening fences, only the second is closed


@pytest.mark.parametrize(
    "answer", ["", "  \n", "```python\nx = 1\ny =", "```\n```", "```python\n\n```\nDone."]
)
def test_an_answer_without_code_is_an_action_error(answer: str) -> None:
    with pytest.raises(ActionError, match="The model"):
        extract_code(answer)
