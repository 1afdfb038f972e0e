"""Action: Reflection."""

from mlagentbench.actions.base import World
from mlagentbench.language.prompts import fill

MODEL, CHANGES = True, False


def reflection(world: World, things_to_reflect_on: str) -> str:
    """Have the research log looked over, and get thoughts on it.

    Args:
        things_to_reflect_on: a detailed description of what to reflect on and what should be returned
    """
    return world.ask(fill("reflect", log=world.research_log(), wanted=things_to_reflect_on), "fast")
