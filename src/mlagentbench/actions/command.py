"""Action: Command. Internal: one turn of an external program. Never offered to agents."""

from collections.abc import Iterator
from typing import Any

from mlagentbench.actions.base import action
from mlagentbench.actions.execute_script import format_outcome
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError
from mlagentbench.records import Prompt
from mlagentbench.sandbox.output import CommandOutput

ASKS_MODEL = "[it asks the model]"
RESULT_HEADER = "[result of {tool}]"  # before each result of a tool in an observation


@action(is_internal=True)
def command(context: ActionContext, turn: int, calls: list[dict[str, Any]] | None = None) -> str:
    """Let the external program run until it asks a model, exits, or hits a limit.

    Args:
        turn: the number of this turn
        calls: the tool calls in the reply that the program has just received
    """
    program = context.external_program
    if program is None:
        raise ActionError("No external program is running.")
    context.output = program.output
    size_before = program.output.size_bytes
    event = program.run_until_request(context.step_time_limit_s)
    refused = [f"[refused: {refusal}]" for refusal in program.take_refusals()]
    if event == "request":
        printed = program.output.text_since(size_before).rstrip("\n")
        news = list(_describe_new_messages(program.request.prompt)) if program.request else []
        return "\n".join(filter(None, (printed, *refused, *(news or [ASKS_MODEL]))))
    execution = program.finish()
    context.external_program = None
    context.execution = execution.replace(output_file=context.program_output_path.name)
    outcome = format_outcome(execution, context.limits, context.step_time_limit_s)
    return "\n".join((outcome, *refused, program.output.text)).rstrip()


def _describe_new_messages(prompt: Prompt) -> Iterator[str]:
    """What the program tells the model since its last reply: results of tools, and other messages."""
    replies = [number for number, message in enumerate(prompt.messages) if message.role == "assistant"]
    tools = {call.id: call.name for message in prompt.messages for call in message.calls}
    for message in prompt.messages[replies[-1] + 1 :] if replies else ():
        is_result = message.role == "tool"
        tool = tools.get(message.answers, "a tool")
        yield RESULT_HEADER.format(tool=tool) if is_result else "[message to the model]"
        shortened = CommandOutput()
        shortened.write(message.text.encode("utf-8", "replace"))
        yield shortened.text
