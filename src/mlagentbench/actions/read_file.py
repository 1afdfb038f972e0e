"""Action: Read File."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext

MAX_FILE_BYTES = 20_000


@action(changes_workspace=False)
def read_file(context: ActionContext, file_name: str) -> str:
    """Read a file. Only the beginning of a long file is shown; use Inspect Script Lines for parts of it.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
    """
    content, size = context.workspace.read(file_name, MAX_FILE_BYTES)
    text = content.decode("utf-8", "replace")
    if size <= MAX_FILE_BYTES:
        return text
    return f"{text}\n[... {size - MAX_FILE_BYTES:,} more bytes of {size:,} not shown ...]"
