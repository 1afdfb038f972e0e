"""Action: Reflection."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext
from mlagentbench.language.prompts import fill_prompt


@action(changes_workspace=False, needs_model=True)
def reflection(context: ActionContext, things_to_reflect_on: str) -> str:
    """Have a model look over the research log and reflect on it.

    Args:
        things_to_reflect_on: a detailed description of what to reflect on and what should be returned
    """
    question = fill_prompt("reflect", log=context.research_log_text(), wanted=things_to_reflect_on)
    return context.ask_model(question, "fast")
