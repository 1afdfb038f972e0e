"""Action: Python REPL."""

from mlagentbench.actions.base import World
from mlagentbench.actions.execute_script import outcome
from mlagentbench.sandbox.output import Output
from mlagentbench.sandbox.repl import Repl

NAME = "Python REPL"


def python_repl(world: World, command: str) -> str:
    """Run Python code in an interpreter that keeps its variables until the end of the run.

    Args:
        command: Python code; the value of a last expression is shown
    """
    box = world.box()
    seconds = min(box.limits.script_minutes * 60, world.seconds_left())
    world.repl = world.repl or Repl(world.sandbox, box)
    with Output(world.output_file) as output:
        world.output = output
        done = world.repl.run(command, seconds, output)
    if done is None:
        return output.text.rstrip() or "(no output)"
    world.repl = None
    world.execution = done.but(output_file=world.output_file.name)
    note = "The interpreter ended; the next command starts a new one."
    return f"{outcome(done, box.limits, seconds)} {note}\n{output.text}".rstrip()
