"""Action: Understand File."""

from mlagentbench.actions.base import ActionContext
from mlagentbench.errors import ActionError
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.workspace.paths import format_path

MODEL, CHANGES = True, False
CHUNK_CHARS, MAX_CHUNKS = 12_000, 12  # characters that a model reads at once, and how often


def understand_file(world: ActionContext, file_name: str, things_to_look_for: str) -> str:
    """Have a whole file read and get an answer to what you want to know about it.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
        things_to_look_for: a detailed description of what to look for and what should be returned
    """
    content, size = world.workspace.read(file_name, CHUNK_CHARS * MAX_CHUNKS)
    text, name = content.decode("utf-8", "replace"), format_path(file_name)
    if not text.strip():
        raise ActionError(f"{name} is empty")
    parts = [text[at : at + CHUNK_CHARS] for at in range(0, len(text), CHUNK_CHARS)]
    reports = []
    for number, part in enumerate(parts, 1):
        told = {"part": str(number), "parts": str(len(parts)), "name": name, "wanted": things_to_look_for}
        reports.append(world.ask_model(fill_prompt("understand_file", content=part, **told), "fast"))
    rest = (
        f"\n[the last {size - len(content):,} of {size:,} bytes were not read]" if size > len(content) else ""
    )
    if len(reports) == 1:
        return reports[0] + rest
    joined = "\n\n".join(f"Part {number}: {report}" for number, report in enumerate(reports, 1))
    return (
        world.ask_model(
            fill_prompt("understand_parts", name=name, wanted=things_to_look_for, reports=joined), "fast"
        )
        + rest
    )
