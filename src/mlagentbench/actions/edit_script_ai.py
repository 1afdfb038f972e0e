"""Action: Edit Script (AI)."""

from mlagentbench.actions.base import action, format_text_diff
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.language.replies import extract_code
from mlagentbench.workspace.paths import format_path

MAX_SCRIPT_BYTES = 100_000  # of a script that a model rewrites


@action(name="Edit Script (AI)", needs_model=True)
def edit_script_ai(context: ActionContext, script_name: str, edit_instruction: str, save_name: str) -> str:
    """Have a model edit a whole script, or write a new one, from a description. Shows the changes.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed; it may be new
        edit_instruction: a detailed step by step description of how to edit it
        save_name: the name to save the new script under, with relative path to the workspace
    """
    old = read_script(context, script_name, may_be_new=True)
    question = fill_prompt(
        "edit_script", name=format_path(script_name), content=old, instruction=edit_instruction
    )
    new = extract_code(context.ask_model(question, "edit", repeated_chars=len(old)))
    return save_script(context, script_name, save_name, old, new)


def read_script(context: ActionContext, name: str, may_be_new: bool = False) -> str:
    """Read a script that is small enough for a model to rewrite."""
    try:
        content, size = context.workspace.read(name, MAX_SCRIPT_BYTES)
    except ActionError:
        if may_be_new and not context.workspace.exists(name):
            return ""
        raise
    if size > MAX_SCRIPT_BYTES:
        raise ActionError(
            f"{format_path(name)} has {size:,} bytes; the limit for editing is {MAX_SCRIPT_BYTES:,}."
        )
    return content.decode("utf-8", "replace")


def save_script(context: ActionContext, name: str, save_name: str, old: str, new: str) -> str:
    """Write the new script and return its diff."""
    context.workspace.write(save_name, new.encode())
    diff = format_text_diff(old, new, format_path(name), format_path(save_name))
    return f"The edited script was saved to {format_path(save_name)}. Changes:\n{diff or '(none)'}"
