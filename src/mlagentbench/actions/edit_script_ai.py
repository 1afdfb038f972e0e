"""Action: Edit Script (AI)."""

from mlagentbench.actions.base import ActionContext, format_text_diff
from mlagentbench.errors import ActionError
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.language.replies import extract_code
from mlagentbench.workspace.paths import format_path

NAME, MODEL = "Edit Script (AI)", True
MAX_SCRIPT_BYTES = 100_000  # bytes of a script that a model is asked to rewrite


def edit_script_ai(world: ActionContext, script_name: str, edit_instruction: str, save_name: str) -> str:
    """Have a whole script changed, or a new one written, by describing the change. Shows what was changed.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed; it may be new
        edit_instruction: a detailed step by step description of how to edit it
        save_name: the name to save the new script under, with relative path to the workspace
    """
    old = read_script(world, script_name, may_be_new=True)
    asked = fill_prompt(
        "edit_script", name=format_path(script_name), content=old, instruction=edit_instruction
    )
    new = extract_code(world.ask_model(asked, "edit", repeated_chars=len(old)))
    return save_script(world, script_name, save_name, old, new)


def read_script(world: ActionContext, name: str, may_be_new: bool = False) -> str:
    """The text of a script that a model can be asked to rewrite."""
    try:
        content, size = world.workspace.read(name, MAX_SCRIPT_BYTES)
    except ActionError:
        if may_be_new and not world.workspace.exists(name):
            return ""
        raise
    if size > MAX_SCRIPT_BYTES:
        raise ActionError(
            f"{format_path(name)} has {size:,} bytes; only scripts of up to {MAX_SCRIPT_BYTES:,} can be edited"
        )
    return content.decode("utf-8", "replace")


def save_script(world: ActionContext, name: str, save_name: str, old: str, new: str) -> str:
    """Write the new script, and show what is different."""
    world.workspace.write(save_name, new.encode())
    change = format_text_diff(old, new, format_path(name), format_path(save_name))
    return f"The edited file is saved to {format_path(save_name)}. What was changed:\n{change or '(nothing)'}"
