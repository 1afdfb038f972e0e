"""Action: Python REPL."""

from mlagentbench.actions.base import World
from mlagentbench.actions.execute_script import outcome
from mlagentbench.records import Execution
from mlagentbench.sandbox.output import Output
from mlagentbench.sandbox.repl import Repl

NAME = "Python REPL"


def python_repl(world: World, command: str) -> str:
    """Run Python code in an interpreter that keeps its variables until the end of the run.

    Args:
        command: Python code; the value of a last expression is shown
    """
    with Output(world.output_file) as output:
        world.output = output
        done = _run(world, command, world.seconds, output)
    if done is None:
        return output.text.rstrip() or "(no output)"
    world.execution = done.but(output_file=world.output_file.name)
    note = "The interpreter ended; the next command starts a new one."
    return f"{outcome(done, world.limits, world.seconds)} {note}\n{output.text}".rstrip()


def rebuild(world: World, command: str, seconds: float) -> None:
    """Run once more what was run before a resume, for the variables that it leaves."""
    with Output() as output:
        _run(world, command, seconds, output)


def _run(world: World, command: str, seconds: float, output: Output) -> Execution | None:
    world.repl = world.repl or Repl(world.sandbox, world.box())
    done = world.repl.run(command, seconds, output)
    if done is not None:
        world.repl = None
    return done
