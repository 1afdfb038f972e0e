"""Action: Read File."""

from mlagentbench.actions.base import ActionContext

CHANGES = False
MAX_FILE_CHARS = 20_000


def read_file(world: ActionContext, file_name: str) -> str:
    """Read a file. Of a long one only the beginning is shown; use Inspect Script Lines for parts of it.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
    """
    content, size = world.workspace.read(file_name, MAX_FILE_CHARS)
    text = content.decode("utf-8", "replace")
    return (
        f"{text}\n[... {size - MAX_FILE_CHARS:,} more bytes of {size:,} not shown ...]"
        if size > MAX_FILE_CHARS
        else text
    )
