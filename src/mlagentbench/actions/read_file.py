"""Action: Read File."""

from mlagentbench.actions.base import World

CHANGES = False
CAP = 20_000


def read_file(world: World, file_name: str) -> str:
    """Read a file. Of a long one only the beginning is shown; use Inspect Script Lines for parts of it.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
    """
    content, size = world.workspace.read(file_name, CAP)
    text = content.decode("utf-8", "replace")
    return f"{text}\n[... {size - CAP:,} more bytes of {size:,} not shown ...]" if size > CAP else text
