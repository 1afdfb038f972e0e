"""Action: Command. Not offered to agents: the harness's own step for an outside program."""

from mlagentbench.actions.base import ActionContext
from mlagentbench.actions.execute_script import format_outcome
from mlagentbench.errors import ActionError

HIDDEN = True


def command(world: ActionContext, turn: int) -> str:
    """Let the outside program run until it asks a model, ends, or hits a limit.

    Args:
        turn: how often it was let run
    """
    outside = world.external_program
    if outside is None:
        raise ActionError("there is no outside program")
    world.output = outside.output
    before = outside.output.size_bytes
    how = outside.run_until_request(world.step_time_limit_s)
    said = outside.output.text if outside.output.size_bytes > before else ""
    if how == "asks":
        return f"{said}\n[it asks the model]".lstrip()
    done = outside.finish()
    world.external_program = None
    world.execution = done.replace(output_file=world.program_output_path.name)
    return f"{format_outcome(done, world.limits, world.step_time_limit_s)}\n{outside.output.text}".rstrip()
