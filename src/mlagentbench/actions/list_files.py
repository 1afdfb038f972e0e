"""Action: List Files."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext

MAX_ENTRIES = 1000


@action(changes_workspace=False)
def list_files(context: ActionContext, dir_path: str = ".") -> str:
    """List the files and folders in a folder of the workspace.

    Args:
        dir_path: a valid relative path to a folder, such as "." or "folder1/folder2"
    """
    entries = [str(entry) for entry in context.workspace.list_folder(dir_path)]
    more = [f"... and {len(entries) - MAX_ENTRIES:,} more"] if len(entries) > MAX_ENTRIES else []
    return "\n".join(entries[:MAX_ENTRIES] + more) or "The folder is empty."
