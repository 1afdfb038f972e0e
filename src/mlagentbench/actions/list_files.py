"""Action: List Files."""

from mlagentbench.actions.base import World

CHANGES = False
MOST = 1000


def list_files(world: World, dir_path: str = ".") -> str:
    """List the files and folders in a folder of the workspace.

    Args:
        dir_path: a valid relative path to a folder, such as "." or "folder1/folder2"
    """
    entries = [str(entry) for entry in world.workspace.entries(dir_path)]
    more = [f"... and {len(entries) - MOST:,} more"] if len(entries) > MOST else []
    return "\n".join(entries[:MOST] + more) or "The folder is empty."
