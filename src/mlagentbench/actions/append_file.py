"""Action: Append File."""

from mlagentbench.actions.base import ActionContext
from mlagentbench.workspace.paths import format_path


def append_file(world: ActionContext, file_name: str, content: str) -> str:
    """Append to a file; it is made if it does not exist.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
        content: the content to be appended
    """
    world.workspace.append(file_name, content.encode())
    return f"Appended to {format_path(file_name)}."
