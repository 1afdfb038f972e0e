"""Action: Edit Script Segment (AI)."""

from mlagentbench.actions.base import World
from mlagentbench.actions.edit_script_ai import save, script
from mlagentbench.errors import ActionError
from mlagentbench.language.prompts import fill
from mlagentbench.language.replies import code
from mlagentbench.workspace.paths import shown

NAME, MODEL = "Edit Script Segment (AI)", True


def edit_script_segment_ai(
    world: World,
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
    old = script(world, script_name)
    lines = old.splitlines(keepends=True)
    if not 1 <= start_line_number <= end_line_number <= len(lines):
        raise ActionError(f"{shown(script_name)} has {len(lines)} lines: both numbers must lie within, in order")
    before, segment = lines[: start_line_number - 1], lines[start_line_number - 1 : end_line_number]
    told = {"first": str(start_line_number), "last": str(end_line_number), "instruction": edit_instruction}
    asked = fill("edit_segment", name=shown(script_name), segment="".join(segment).rstrip("\n"), content=old, **told)
    new = code(world.ask(asked, "edit", room=len("".join(segment))))
    return save(world, script_name, save_name, old, "".join([*before, new, *lines[end_line_number:]]))
