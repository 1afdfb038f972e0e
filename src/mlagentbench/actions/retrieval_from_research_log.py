"""Action: Retrieval from Research Log."""

from mlagentbench.actions.base import World
from mlagentbench.language.prompts import fill

NAME, MODEL, CHANGES = "Retrieval from Research Log", True, False


def retrieval_from_research_log(world: World, current_plan: str) -> str:
    """Get what matters now from the research log.

    Args:
        current_plan: a detailed description of the research plan and of where it stands
    """
    return world.ask(fill("retrieve", log=world.research_log(), plan=current_plan), "fast")
