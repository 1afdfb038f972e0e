"""Action: Write File."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext
from mlagentbench.workspace.paths import format_path


@action()
def write_file(context: ActionContext, file_name: str, content: str) -> str:
    """Write a whole file. An existing file is overwritten.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
        content: the content to be written
    """
    context.workspace.write(file_name, content.encode())
    return f"File {format_path(file_name)} written."
