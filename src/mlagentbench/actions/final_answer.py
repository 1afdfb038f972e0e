"""Action: Final Answer."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext


@action(ends_run=True)
def final_answer(context: ActionContext, final_answer: str) -> str:
    """Submit the workspace as it is and end the run.

    Args:
        final_answer: a short description of what was done
    """
    return "Submitted."
