"""Action: Retrieval from Research Log."""

from mlagentbench.actions.base import ActionContext
from mlagentbench.language.prompts import fill_prompt

NAME, MODEL, CHANGES = "Retrieval from Research Log", True, False


def retrieval_from_research_log(world: ActionContext, current_plan: str) -> str:
    """Get what matters now from the research log.

    Args:
        current_plan: a detailed description of the research plan and of where it stands
    """
    return world.ask_model(fill_prompt("retrieve", log=world.research_log_text(), plan=current_plan), "fast")
