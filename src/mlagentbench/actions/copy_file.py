"""Action: Copy File."""

from mlagentbench.actions.base import ActionContext
from mlagentbench.workspace.paths import format_path


def copy_file(world: ActionContext, source: str, destination: str) -> str:
    """Copy a file to another place in the workspace.

    Args:
        source: a valid file name with relative path to the workspace, if needed
        destination: a valid file name with relative path to the workspace, if needed
    """
    world.workspace.copy(source, destination)
    return f"File {format_path(source)} copied to {format_path(destination)}."
