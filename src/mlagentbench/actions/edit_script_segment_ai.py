"""Action: Edit Script Segment (AI)."""

from mlagentbench.actions.base import action
from mlagentbench.actions.edit_script_ai import read_script, save_script
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.language.replies import extract_code
from mlagentbench.workspace.paths import format_path


@action(name="Edit Script Segment (AI)", needs_model=True)
def edit_script_segment_ai(
    context: ActionContext,
    script_name: str,
    start_line_number: int,
    end_line_number: int,
    edit_instruction: str,
    save_name: str,
) -> str:
    """Have a model edit some lines of a script from a description. Shows the changes.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed
        start_line_number: the first line to change, counted from 1
        end_line_number: the last line to change
        edit_instruction: a detailed step by step description of how to edit these lines
        save_name: the name to save the new script under, with relative path to the workspace
    """
    old = read_script(context, script_name)
    lines = old.splitlines(keepends=True)
    if not 1 <= start_line_number <= end_line_number <= len(lines):
        raise ActionError(
            f"{format_path(script_name)} has {len(lines)} lines: both numbers must lie within, in order."
        )
    before, after = lines[: start_line_number - 1], lines[end_line_number:]
    segment = "".join(lines[start_line_number - 1 : end_line_number])
    question = fill_prompt(
        "edit_segment",
        name=format_path(script_name),
        content=old,
        segment=segment.rstrip("\n"),
        first=str(start_line_number),
        last=str(end_line_number),
        instruction=edit_instruction,
    )
    new = extract_code(context.ask_model(question, "edit", repeated_chars=len(segment)))
    return save_script(context, script_name, save_name, old, "".join([*before, new, *after]))
