"""Action: Count Lines."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError


@action(changes_workspace=False)
def count_lines(context: ActionContext, file_name: str) -> str:
    """Count the lines of a file.

    Args:
        file_name: a valid file name with relative path to the workspace
    """
    content, size = context.workspace.read(file_name)
    if not size:
        raise ActionError(f"{file_name} is empty.")
    return f"{len(content.splitlines())} lines"
