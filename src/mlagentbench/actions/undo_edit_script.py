"""Action: Undo Edit Script."""

from pathlib import PurePosixPath

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError
from mlagentbench.workspace.paths import format_path, normalize_path


@action()
def undo_edit_script(context: ActionContext, script_name: str) -> str:
    """Restore a file to what it was before its last change.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed
    """
    path, name = normalize_path(script_name), format_path(script_name)
    if context.workspace.is_read_only(path):
        raise ActionError(f"{name} is read-only.")
    changes = _steps_that_changed(context, path)
    if not changes or changes[-1] == 0:
        raise ActionError(f"{name} has no change to undo.")
    old, now = context.store.state(changes[-1] - 1), context.store.state(len(context.steps))
    if path not in old:
        context.workspace.remove(script_name)
        return f"{name} did not exist before its last change; it was removed."
    if old[path].kind == "folder" or (path in now and now[path].kind == "folder"):
        raise ActionError(f"{name} is or was a folder; only changes of files can be undone.")
    parents = [parent.as_posix() for parent in PurePosixPath(path).parents][:-1]
    if any(now[parent].kind != "folder" for parent in parents if parent in now):
        raise ActionError(f"{name} cannot be restored: one of its parent folders is no longer a folder.")
    restored = {entry: old[entry] for entry in (path, *parents) if entry == path or entry not in now}
    root, owner = context.workspace.root, context.workspace.owner
    context.store.restore(len(context.steps), root, owner, overrides=restored)
    return f"{name} was restored to its state before the last change."


def _steps_that_changed(context: ActionContext, path: str) -> list[int]:
    """The steps that changed a file and were not undone."""
    undo_steps = {
        step.number
        for step in context.steps
        if step.call.action == undo_edit_script.name
        and not step.failed
        and normalize_path(str(step.call.args["script_name"])) == path
    }
    changes: list[int] = []
    for step in context.store.history(path):
        if step in undo_steps:
            changes.pop()
        else:
            changes.append(step)
    return changes
