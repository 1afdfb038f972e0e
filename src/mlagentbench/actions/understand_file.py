"""Action: Understand File."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.workspace.paths import format_path

CHUNK_CHARS, MAX_CHUNKS = 12_000, 12  # how much a model reads at once, and how often


@action(changes_workspace=False, needs_model=True)
def understand_file(context: ActionContext, file_name: str, things_to_look_for: str) -> str:
    """Have a model read a whole file and answer a question about it.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
        things_to_look_for: a detailed description of what to look for and what should be returned
    """
    content, size = context.workspace.read(file_name, CHUNK_CHARS * MAX_CHUNKS)
    text, name = content.decode("utf-8", "replace"), format_path(file_name)
    if not text.strip():
        raise ActionError(f"{name} is empty.")
    chunks = [text[start : start + CHUNK_CHARS] for start in range(0, len(text), CHUNK_CHARS)]
    answers = []
    for number, chunk in enumerate(chunks, 1):
        question = fill_prompt(
            "understand_file",
            name=name,
            content=chunk,
            part=str(number),
            parts=str(len(chunks)),
            wanted=things_to_look_for,
        )
        answers.append(context.ask_model(question, "fast"))
    answer = answers[0]
    if len(answers) > 1:
        reports = "\n\n".join(f"Part {number}: {report}" for number, report in enumerate(answers, 1))
        question = fill_prompt("understand_parts", name=name, wanted=things_to_look_for, reports=reports)
        answer = context.ask_model(question, "fast")
    if size > len(content):
        answer += f"\n[the last {size - len(content):,} of {size:,} bytes were not read]"
    return answer
