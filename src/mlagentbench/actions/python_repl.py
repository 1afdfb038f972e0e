"""Action: Python REPL."""

from mlagentbench.actions.base import action
from mlagentbench.actions.execute_script import format_outcome
from mlagentbench.environment.context import ActionContext
from mlagentbench.records import Execution
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.repl import Repl


@action(name="Python REPL")
def python_repl(context: ActionContext, command: str) -> str:
    """Run Python code in an interpreter that keeps its variables until the end of the run.

    The output is shown when the command has ended. A command may run for {{script_minutes}} at most, or until
    the end of the run; then the interpreter is terminated and its variables are lost. To see the progress of
    a long script, start it with subprocess.Popen, its output in a file, and read the file in later commands:
    processes in the background are paused between commands, and continue while a command runs.

    Args:
        command: Python code; the value of a last expression is shown
    """
    with CommandOutput(context.step_output_path) as output:
        context.output = output
        execution = _run_command(context, command, context.step_time_limit_s, output)
    if execution is None:
        return output.text.rstrip() or "(no output)"
    context.execution = execution.replace(output_file=context.step_output_path.name)
    outcome = format_outcome(execution, context.limits, context.step_time_limit_s)
    return f"{outcome} The interpreter ended; the next command starts a new one.\n{output.text}".rstrip()


def rerun_command(context: ActionContext, command: str, timeout_s: float, step: int) -> None:
    """Run the command of a recorded step again, for the variables that it leaves.

    Its model calls get the recorded replies.
    """
    context.rerun_step = step
    try:
        with CommandOutput() as output:
            _run_command(context, command, timeout_s, output)
    finally:
        context.rerun_step = None


def _run_command(
    context: ActionContext, command: str, timeout_s: float, output: CommandOutput
) -> Execution | None:
    """Run a command; the execution is None unless the interpreter ended."""
    context.repl = context.repl or Repl(context.sandbox, context.sandbox_spec(), context.grant_model())
    execution = context.repl.run(command, timeout_s, output)
    if execution is not None:
        context.repl = None
    return execution
