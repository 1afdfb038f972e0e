"""Action: Edit Script (AI)."""

from mlagentbench.actions.base import World, difference
from mlagentbench.errors import ActionError
from mlagentbench.language.prompts import fill
from mlagentbench.language.replies import code
from mlagentbench.workspace.paths import shown

NAME, MODEL = "Edit Script (AI)", True
LONGEST = 100_000  # bytes of a script that a model is asked to rewrite


def edit_script_ai(world: World, script_name: str, edit_instruction: str, save_name: str) -> str:
    """Have a whole script changed, or a new one written, by describing the change. Shows what was changed.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed; it may be new
        edit_instruction: a detailed step by step description of how to edit it
        save_name: the name to save the new script under, with relative path to the workspace
    """
    old = script(world, script_name, may_be_new=True)
    asked = fill("edit_script", name=shown(script_name), content=old, instruction=edit_instruction)
    new = code(world.ask(asked, "edit", room=len(old)))
    return save(world, script_name, save_name, old, new)


def script(world: World, name: str, may_be_new: bool = False) -> str:
    """The text of a script that a model can be asked to rewrite."""
    try:
        content, size = world.workspace.read(name, LONGEST)
    except ActionError:
        if may_be_new and not world.workspace.exists(name):
            return ""
        raise
    if size > LONGEST:
        raise ActionError(f"{shown(name)} has {size:,} bytes; only scripts of up to {LONGEST:,} can be edited")
    return content.decode("utf-8", "replace")


def save(world: World, name: str, save_name: str, old: str, new: str) -> str:
    """Write the new script, and show what is different."""
    world.workspace.write(save_name, new.encode())
    change = difference(old, new, shown(name), shown(save_name))
    return f"The edited file is saved to {shown(save_name)}. What was changed:\n{change or '(nothing)'}"
