"""Action: Undo Edit Script."""

from pathlib import PurePosixPath

from mlagentbench.actions.base import ActionContext
from mlagentbench.errors import ActionError
from mlagentbench.workspace.paths import format_path, normalize_path

NAME = "Undo Edit Script"


def undo_edit_script(world: ActionContext, script_name: str) -> str:
    """Bring a file back to what it was before its last change.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed
    """
    path, name = normalize_path(script_name), format_path(script_name)
    if world.workspace.is_read_only(path):
        raise ActionError(f"{name} is read-only")
    changes = _steps_that_changed(world, path)
    if not changes or changes[-1] == 0:
        raise ActionError(f"there is no change of {name} to undo")
    old, now = world.store.state(changes[-1] - 1), world.store.state(len(world.steps))
    if path not in old:
        world.workspace.remove(script_name)
        return f"{name} did not exist before its last change; it was removed."
    if old[path].kind == "folder" or (path in now and now[path].kind == "folder"):
        raise ActionError(f"{name} is or was a folder; only changes of files can be undone")
    above = [parent.as_posix() for parent in PurePosixPath(path).parents][:-1]
    if any(now[parent].kind != "folder" for parent in above if parent in now):
        raise ActionError(f"{name} cannot be brought back: a folder above it is none any more")
    back = {each: old[each] for each in (path, *above) if each == path or each not in now}
    world.store.restore(len(world.steps), world.workspace.root, world.workspace.owner, overrides=back)
    return f"{name} is again as it was before its last change."


def _steps_that_changed(world: ActionContext, path: str) -> list[int]:
    """The steps that changed a file and were not undone."""
    undone = {
        step.number
        for step in world.steps
        if step.call.action == NAME
        and not step.failed
        and normalize_path(str(step.call.args["script_name"])) == path
    }
    changes: list[int] = []
    for step in world.store.steps_changing(path):
        if step in undone:
            changes.pop()
        else:
            changes.append(step)
    return changes
