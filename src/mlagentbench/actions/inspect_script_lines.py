"""Action: Inspect Script Lines."""

from mlagentbench.actions.base import action, number_lines
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError
from mlagentbench.workspace.paths import format_path

MAX_LINES = 100
MAX_LINE_CHARS = 500


@action(changes_workspace=False)
def inspect_script_lines(
    context: ActionContext, script_name: str, start_line_number: int, end_line_number: int
) -> str:
    """Show some lines of a file with their numbers, at most 100 at a time.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed
        start_line_number: the first line to show, counted from 1
        end_line_number: the last line to show
    """
    if not 1 <= start_line_number <= end_line_number:
        raise ActionError("start_line_number must be at least 1, and end_line_number must not be below it.")
    if end_line_number - start_line_number >= MAX_LINES:
        raise ActionError(f"At most {MAX_LINES} lines can be shown at a time.")
    content, _ = context.workspace.read(script_name)
    lines = content.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    if start_line_number > len(lines):
        raise ActionError(f"{format_path(script_name)} has only {len(lines)} lines.")
    shown = [line[:MAX_LINE_CHARS] for line in lines[start_line_number - 1 : end_line_number]]
    last = start_line_number + len(shown) - 1
    return f"Lines {start_line_number} to {last} of {len(lines)}:\n{number_lines(shown, start_line_number)}"
