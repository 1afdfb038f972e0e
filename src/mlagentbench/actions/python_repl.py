"""Action: Python REPL."""

from mlagentbench.actions.base import ActionContext
from mlagentbench.actions.execute_script import format_outcome
from mlagentbench.records import Execution
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.repl import Repl

NAME = "Python REPL"


def python_repl(world: ActionContext, command: str) -> str:
    """Run Python code in an interpreter that keeps its variables until the end of the run.

    Args:
        command: Python code; the value of a last expression is shown
    """
    with CommandOutput(world.step_output_path) as output:
        world.output = output
        done = _run_command(world, command, world.step_time_limit_s, output)
    if done is None:
        return output.text.rstrip() or "(no output)"
    world.execution = done.replace(output_file=world.step_output_path.name)
    note = "The interpreter ended; the next command starts a new one."
    return f"{format_outcome(done, world.limits, world.step_time_limit_s)} {note}\n{output.text}".rstrip()


def rerun_command(world: ActionContext, command: str, seconds: float) -> None:
    """Run once more what was run before a resume, for the variables that it leaves."""
    with CommandOutput() as output:
        _run_command(world, command, seconds, output)


def _run_command(
    world: ActionContext, command: str, seconds: float, output: CommandOutput
) -> Execution | None:
    world.repl = world.repl or Repl(world.sandbox, world.sandbox_spec())
    done = world.repl.run(command, seconds, output)
    if done is not None:
        world.repl = None
    return done
