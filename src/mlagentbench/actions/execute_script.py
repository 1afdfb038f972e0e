"""Action: Execute Script."""

import shlex

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError
from mlagentbench.records import Execution, Limits
from mlagentbench.sandbox.output import MAX_OUTPUT_FILE_BYTES, CommandOutput
from mlagentbench.workspace.paths import format_path, normalize_path

# What the kernel and bubblewrap accept in any case.
MAX_ARGUMENT_CHARS, MAX_ARGUMENTS = 50_000, 1000


@action()
def execute_script(context: ActionContext, script_name: str, arguments: str = "") -> str:
    """Execute a Python script of the workspace and show its output when it has ended.

    It may run for {{script_minutes}} at most, or until the end of the run, and is then terminated.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed
        arguments: command-line arguments for the script, if any
    """
    path = normalize_path(script_name)
    if not path.endswith(".py"):
        raise ActionError(f"{format_path(script_name)} is not a Python script (its name must end in .py).")
    context.workspace.read(script_name, 0)  # raises if it is missing, a folder or a link
    command = ["python", "-u", f"./{path}", *_split_arguments(arguments)]
    with CommandOutput(context.step_output_path) as output:
        context.output = output
        spec, time_limit_s = context.sandbox_spec(), context.step_time_limit_s
        execution = context.sandbox.run(command, spec, time_limit_s, output, context.grant_model())
    context.execution = execution.replace(output_file=context.step_output_path.name)
    return f"{format_outcome(execution, context.limits, context.step_time_limit_s)}\n{output.text}".rstrip()


def _split_arguments(arguments: str) -> list[str]:
    if "\0" in arguments or len(arguments) > MAX_ARGUMENT_CHARS:
        raise ActionError(
            f"The arguments must have fewer than {MAX_ARGUMENT_CHARS:,} characters and no NUL character."
        )
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise ActionError(f"The arguments cannot be parsed: {error}.") from error
    if len(words) > MAX_ARGUMENTS:
        raise ActionError(f"At most {MAX_ARGUMENTS:,} arguments are allowed.")
    return words


def format_outcome(execution: Execution, limits: Limits, time_limit_s: float) -> str:
    """Format how a command ended, in one line."""
    endings = {
        "time": f"killed: time limit {time_limit_s / 60:.3g} minutes",
        "memory": f"killed: memory limit {limits.memory_gb:g} GB",
        "disk": f"killed: disk limit {limits.disk_gb:g} GB or {limits.files:,} files, or folders too deep",
        "processes": f"{_describe_process_limit(execution)}: limit of {limits.processes} processes",
        "cancelled": "killed: the call was cancelled",
        None: f"exit code {execution.exit_code}",
    }
    truncated = execution.output_bytes > MAX_OUTPUT_FILE_BYTES
    kept = f", only the first {MAX_OUTPUT_FILE_BYTES // 2**20} MB of output kept" if truncated else ""
    usage = f"{execution.seconds:.1f} s, peak memory {execution.peak_mb or 0:.0f} MB"
    return f"[{endings[execution.limit]}, {usage}{kept}]"


def _describe_process_limit(execution: Execution) -> str:
    """Forks beyond the limit are refused; only a process that keeps trying is killed."""
    return (
        "killed"
        if execution.exit_code is None
        else f"exit code {execution.exit_code}, some forks were refused"
    )
