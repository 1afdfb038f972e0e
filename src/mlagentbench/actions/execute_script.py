"""Action: Execute Script."""

import shlex

from mlagentbench.actions.base import ActionContext
from mlagentbench.errors import ActionError
from mlagentbench.records import Execution, Limits
from mlagentbench.sandbox.output import MAX_OUTPUT_FILE_BYTES, CommandOutput
from mlagentbench.workspace.paths import format_path, normalize_path

MAX_ARGUMENT_CHARS, MAX_ARGUMENTS = (
    50_000,
    1000,
)  # characters of arguments, and arguments: what the kernel and bubblewrap surely take


def execute_script(world: ActionContext, script_name: str, arguments: str = "") -> str:
    """Execute a Python script of the workspace and show what it printed.

    Args:
        script_name: a valid script name with relative path to the workspace, if needed
        arguments: command-line arguments for the script, if any
    """
    path = normalize_path(script_name)
    if not path.endswith(".py"):
        raise ActionError(f"{format_path(script_name)} is not a Python script (its name must end in .py)")
    world.workspace.read(script_name, 0)  # says why, if it is missing, a folder or a link
    command = ["python", "-u", f"./{path}", *_split_arguments(arguments)]
    with CommandOutput(world.step_output_path) as output:
        world.output = output
        done = world.sandbox.run(command, world.sandbox_spec(), world.step_time_limit_s, output)
    world.execution = done.replace(output_file=world.step_output_path.name)
    return f"{format_outcome(done, world.limits, world.step_time_limit_s)}\n{output.text}".rstrip()


def _split_arguments(arguments: str) -> list[str]:
    if "\0" in arguments or len(arguments) > MAX_ARGUMENT_CHARS:
        raise ActionError(
            f"the arguments must be shorter than {MAX_ARGUMENT_CHARS:,} characters, and hold no NUL"
        )
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise ActionError(f"the arguments cannot be read: {error}") from error
    if len(words) > MAX_ARGUMENTS:
        raise ActionError(f"there can be at most {MAX_ARGUMENTS:,} arguments")
    return words


def format_outcome(done: Execution, limits: Limits, seconds: float) -> str:
    """How a command ended, in one line."""
    words = {
        "time": f"killed: time limit {seconds / 60:.3g} minutes",
        "memory": f"killed: memory limit {limits.memory_gb:g} GB",
        "disk": f"killed: disk limit {limits.disk_gb:g} GB or {limits.files:,} files, or folders too deep",
        "processes": f"{_describe_process_limit(done)}: limit of {limits.processes} processes",
        None: f"exit code {done.exit_code}",
    }
    kept = (
        f", only the first {MAX_OUTPUT_FILE_BYTES // 2**20} MB of output kept"
        if done.output_bytes > MAX_OUTPUT_FILE_BYTES
        else ""
    )
    return f"[{words[done.limit]}, {done.seconds:.1f} s, peak memory {done.peak_mb or 0:.0f} MB{kept}]"


def _describe_process_limit(done: Execution) -> str:
    """Forks beyond the limit are refused; only who never stops trying is killed."""
    return "killed" if done.exit_code is None else f"exit code {done.exit_code}, some forks were refused"
