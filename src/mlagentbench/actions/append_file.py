"""Action: Append File."""

from mlagentbench.actions.base import World
from mlagentbench.workspace.paths import shown


def append_file(world: World, file_name: str, content: str) -> str:
    """Append to a file; it is made if it does not exist.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
        content: the content to be appended
    """
    world.workspace.append(file_name, content.encode())
    return f"Appended to {shown(file_name)}."
