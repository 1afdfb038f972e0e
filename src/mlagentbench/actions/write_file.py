"""Action: Write File."""

from mlagentbench.actions.base import World
from mlagentbench.workspace.paths import shown


def write_file(world: World, file_name: str, content: str) -> str:
    """Write a whole file; an existing file is overwritten.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
        content: the content to be written
    """
    world.workspace.write(file_name, content.encode())
    return f"File {shown(file_name)} written."
