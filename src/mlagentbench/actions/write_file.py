"""Action: Write File."""

from mlagentbench.actions.base import ActionContext
from mlagentbench.workspace.paths import format_path


def write_file(world: ActionContext, file_name: str, content: str) -> str:
    """Write a whole file; an existing file is overwritten.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
        content: the content to be written
    """
    world.workspace.write(file_name, content.encode())
    return f"File {format_path(file_name)} written."
