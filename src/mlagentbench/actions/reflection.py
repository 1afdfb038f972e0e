"""Action: Reflection."""

from mlagentbench.actions.base import ActionContext
from mlagentbench.language.prompts import fill_prompt

MODEL, CHANGES = True, False


def reflection(world: ActionContext, things_to_reflect_on: str) -> str:
    """Have the research log looked over, and get thoughts on it.

    Args:
        things_to_reflect_on: a detailed description of what to reflect on and what should be returned
    """
    return world.ask_model(
        fill_prompt("reflect", log=world.research_log_text(), wanted=things_to_reflect_on), "fast"
    )
