"""Action: Retrieval from Research Log."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext
from mlagentbench.language.prompts import fill_prompt


@action(name="Retrieval from Research Log", changes_workspace=False, needs_model=True)
def retrieval_from_research_log(context: ActionContext, current_plan: str) -> str:
    """Get the notes of the research log that are relevant to the current plan.

    Args:
        current_plan: a detailed description of the research plan and its status
    """
    question = fill_prompt("retrieve", log=context.research_log_text(), plan=current_plan)
    return context.ask_model(question, "fast")
