"""Action: Append File."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext
from mlagentbench.workspace.paths import format_path


@action()
def append_file(context: ActionContext, file_name: str, content: str) -> str:
    """Append to a file. The file is created if it does not exist.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
        content: the content to be appended
    """
    context.workspace.append(file_name, content.encode())
    return f"Appended to {format_path(file_name)}."
