"""Prompts are Markdown files in prompts/; this module fills in their placeholders."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mlagentbench.formatting import PLACEHOLDER, fill_placeholders
from mlagentbench.language.replies import ActionInterface

PROMPT_FOLDER = Path(__file__).parent / "prompts"


def fill_prompt(prompt: str, /, **values: str) -> str:
    """Return a prompt with every {{placeholder}} filled; missing and surplus values raise ValueError."""
    text, placeholders = _read_prompt(prompt)
    if placeholders != values.keys():
        raise ValueError(
            f"The prompt {prompt} has the placeholders {sorted(placeholders)}, not {sorted(values)}."
        )
    return fill_placeholders(text, values)


@cache
def _read_prompt(name: str) -> tuple[str, frozenset[str]]:
    """The text of a prompt, and the names of its placeholders."""
    text = (PROMPT_FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()
    return text, frozenset(PLACEHOLDER.findall(text))


def format_actions(actions: Mapping[str, ActionInterface]) -> str:
    """Describe the available actions and how to call each."""
    return "\n\n".join(
        f"- {action.name}: {action.description}\n  Action: {action.name}\n  Action Input: {action.usage}"
        for action in actions.values()
    )
