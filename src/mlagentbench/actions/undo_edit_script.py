"""Action: Undo Edit Script."""

from mlagentbench.actions.base import World
from mlagentbench.errors import ActionError
from mlagentbench.workspace.paths import normal

NAME = "Undo Edit Script"


def undo_edit_script(world: World, script_name: str) -> str:
    """Bring a file back to what it was before its last change.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed
    """
    path = normal(script_name)
    undone = {
        step.number
        for step in world.steps
        if step.call.action == NAME and not step.failed and normal(str(step.call.args["script_name"])) == path
    }
    changes: list[int] = []
    for step in world.store.history(path):
        if step in undone:
            changes.pop()
        else:
            changes.append(step)
    if not changes or changes[-1] == 0:
        raise ActionError(f"there is no change of {script_name} to undo")
    before = world.store.state(changes[-1] - 1).get(path)
    if before is None:
        world.workspace.remove(script_name)
        return f"{script_name} did not exist before its last change; it was removed."
    if before.kind != "file":
        raise ActionError(f"{script_name} was a {before.kind} before its last change")
    world.workspace.write(script_name, world.store.content(changes[-1] - 1, path))
    return f"{script_name} is again as it was before its last change."
