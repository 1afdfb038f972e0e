"""Action: Copy File."""

from mlagentbench.actions.base import World
from mlagentbench.workspace.paths import shown


def copy_file(world: World, source: str, destination: str) -> str:
    """Copy a file to another place in the workspace.

    Args:
        source: a valid file name with relative path to the workspace, if needed
        destination: a valid file name with relative path to the workspace, if needed
    """
    world.workspace.copy(source, destination)
    return f"File {shown(source)} copied to {shown(destination)}."
