"""Action: Edit Script Segment (AI)."""

from mlagentbench.actions.base import ActionContext
from mlagentbench.actions.edit_script_ai import read_script, save_script
from mlagentbench.errors import ActionError
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.language.replies import extract_code
from mlagentbench.workspace.paths import format_path

NAME, MODEL = "Edit Script Segment (AI)", True


def edit_script_segment_ai(
    world: ActionContext,
    script_name: str,
    start_line_number: int,
    end_line_number: int,
    edit_instruction: str,
    save_name: str,
) -> str:
    """Have some lines of a script changed by describing the change. Shows what was changed.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed
        start_line_number: the first line to change, counted from 1
        end_line_number: the last line to change
        edit_instruction: a detailed step by step description of how to edit these lines
        save_name: the name to save the new script under, with relative path to the workspace
    """
    old = read_script(world, script_name)
    lines = old.splitlines(keepends=True)
    if not 1 <= start_line_number <= end_line_number <= len(lines):
        raise ActionError(
            f"{format_path(script_name)} has {len(lines)} lines: both numbers must lie within, in order"
        )
    before, segment = lines[: start_line_number - 1], lines[start_line_number - 1 : end_line_number]
    told = {"first": str(start_line_number), "last": str(end_line_number), "instruction": edit_instruction}
    asked = fill_prompt(
        "edit_segment",
        name=format_path(script_name),
        segment="".join(segment).rstrip("\n"),
        content=old,
        **told,
    )
    new = extract_code(world.ask_model(asked, "edit", repeated_chars=len("".join(segment))))
    return save_script(world, script_name, save_name, old, "".join([*before, new, *lines[end_line_number:]]))
