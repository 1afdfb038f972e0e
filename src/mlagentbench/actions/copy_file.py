"""Action: Copy File."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext
from mlagentbench.workspace.paths import format_path


@action()
def copy_file(context: ActionContext, source: str, destination: str) -> str:
    """Copy a file within the workspace.

    Args:
        source: a valid file name with relative path to the workspace, if needed
        destination: a valid file name with relative path to the workspace, if needed
    """
    context.workspace.copy(source, destination)
    return f"Copied {format_path(source)} to {format_path(destination)}."
