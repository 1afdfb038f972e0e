"""The child process of subprocess_runner: executes one run, or reports the traits of an agent file."""

import os
import signal
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType

from mlagentbench.agents import base as agents
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, UsageError
from mlagentbench.records import AgentSpec
from mlagentbench.runner.batch.subprocess_runner import (
    EXIT_DONE,
    EXIT_FAULT,
    EXIT_STOPPED,
    EXIT_USAGE_ERROR,
    AgentTraits,
)
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import restore_setup
from mlagentbench.runner.start import resume_run


def print_agent_traits(sandbox: str) -> None:
    """Read an AgentSpec from stdin, create the agent and print its traits to stdout."""
    agent_spec = AgentSpec.model_validate_json(sys.stdin.read())
    with redirect_stdout(sys.stderr):
        agent_class = agents.load_agent_class(agent_spec.agent)
        agents.instantiate_agent(agent_class, 0, agent_spec.options, sandbox)
    print(AgentTraits.of_class(agent_class).model_dump_json(), end="", flush=True)


def continue_run(path: Path, gpu: str, task: str) -> None:
    """Execute the run in folder `path` until it ends or is stopped by SIGTERM."""
    environments: list[Environment] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for env in environments:
            env.stop_token.request()  # an agent may catch the exception below
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    setup = restore_setup(RunFolder(path).spec.replace(gpu=gpu, task=task), _print_to_stderr)
    resume_run(path, None, _print_to_stderr, environments.append, setup)


def _print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(parent_pid: str, command: str, *arguments: str) -> int:
    """Execute the command and return the exit code."""
    if os.getppid() != int(parent_pid):
        return EXIT_FAULT  # the parent died before its death signal was set
    try:
        if command == "traits":
            print_agent_traits(*arguments)
        else:
            continue_run(Path(arguments[0]), *arguments[1:])
    except KeyboardInterrupt:
        return EXIT_STOPPED
    except UsageError as error:
        _print_to_stderr(str(error))
        return EXIT_USAGE_ERROR
    except (Fault, OSError) as error:
        _print_to_stderr(f"{type(error).__name__}: {error}")
        return EXIT_FAULT
    return EXIT_DONE


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # does not wait for threads that an agent has left behind
