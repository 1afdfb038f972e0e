"""Action: Append Summary to Research Log."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext


# The log is kept in memory only, so a resumed run appends again.
@action(name="Append Summary to Research Log", changes_workspace=False, reruns_on_resume=True)
def append_summary_to_research_log(context: ActionContext, content: str) -> str:
    """Add a note about what was done and learned to the research log.

    Args:
        content: a summary of the last steps, with their results
    """
    context.research_notes.append(content)
    return "The summary was added to the research log."
