"""Prompts are files, readable as prose; this fills in what is asked for."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mlagentbench.formatting import PLACEHOLDER, fill_placeholders
from mlagentbench.language.replies import ActionInterface

PROMPT_FOLDER = Path(__file__).parent / "prompts"


def fill_prompt(prompt: str, /, **values: str) -> str:
    """The text of a prompt, with every {{blank}} filled; one that is left open, or not there, is a mistake of ours."""
    text = _read_prompt(prompt)
    if (blanks := set(PLACEHOLDER.findall(text))) != values.keys():
        raise ValueError(f"the prompt {prompt} has the blanks {sorted(blanks)}, not {sorted(values)}")
    return fill_placeholders(text, values)


@cache
def _read_prompt(name: str) -> str:
    return (PROMPT_FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()


def format_actions(actions: Mapping[str, ActionInterface]) -> str:
    """What can be done, and how it is asked for."""
    return "\n\n".join(
        f"- {action.name}: {action.description}\n  Action: {action.name}\n  Action Input: {action.usage}"
        for action in actions.values()
    )
