"""Action: Command. Internal: one turn of an external program. Never offered to agents."""

from mlagentbench.actions.base import action
from mlagentbench.actions.execute_script import format_outcome
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError


@action(is_internal=True)
def command(context: ActionContext, turn: int) -> str:
    """Let the external program run until it asks a model, exits, or hits a limit.

    Args:
        turn: the number of this turn
    """
    program = context.external_program
    if program is None:
        raise ActionError("No external program is running.")
    context.output = program.output
    size_before = program.output.size_bytes
    event = program.run_until_request(context.step_time_limit_s)
    printed = program.output.text if program.output.size_bytes > size_before else ""
    refused = "".join(f"\n[refused: {refusal}]" for refusal in program.take_refusals())
    if event == "request":
        return f"{printed}{refused}\n[it asks the model]".lstrip()
    execution = program.finish()
    context.external_program = None
    context.execution = execution.replace(output_file=context.program_output_path.name)
    outcome = format_outcome(execution, context.limits, context.step_time_limit_s)
    return f"{outcome}{refused}\n{program.output.text}".rstrip()
