"""Action: Command. Not offered to agents: the harness's own step for an outside program."""

from mlagentbench.actions.base import World
from mlagentbench.actions.execute_script import outcome
from mlagentbench.errors import ActionError

HIDDEN = True


def command(world: World, turn: int) -> str:
    """Let the outside program run until it asks a model, ends, or hits a limit.

    Args:
        turn: how often it was let run
    """
    outside = world.outside
    if outside is None:
        raise ActionError("there is no outside program")
    world.output = outside.output
    before = outside.output.size
    how = outside.proceed(world.seconds)
    said = outside.output.text if outside.output.size > before else ""
    if how == "asks":
        return f"{said}\n[it asks the model]".lstrip()
    done = outside.finish()
    world.outside = None
    world.execution = done.but(output_file=world.program_output.name)
    return f"{outcome(done, world.limits, world.seconds)}\n{outside.output.text}".rstrip()
