"""Action: Append Summary to Research Log."""

from mlagentbench.actions.base import ActionContext

NAME, CHANGES = "Append Summary to Research Log", False
REPLAYED = True  # the log is in memory only


def append_summary_to_research_log(world: ActionContext, content: str) -> str:
    """Add a note on what was done and learned to the research log.

    Args:
        content: a summary of the last steps, with their results
    """
    world.research_notes.append(content)
    return "The summary is in the research log."
