"""The process of one run: goes on with a run folder, or tells what kind of agent a file holds."""

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
    """The traits of an agent."""
    who = AgentSpec.model_validate_json(sys.stdin.read())
    with redirect_stdout(sys.stderr):
        kind = agents.load_agent_class(who.agent)
        agents.instantiate_agent(kind, 0, who.options, sandbox)
    found = AgentTraits(needs_model=kind.needs_model, interactive=kind.interactive)
    print(found.model_dump_json(), end="", flush=True)


def continue_run(place: Path, gpu: str, task: str) -> None:
    """The run, to its end or until somebody asks it to stop."""
    worlds: list[Environment] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for env in worlds:
            env.stop_token.request()  # should the agent catch even what is raised here
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    setup = restore_setup(RunFolder(place).spec.replace(gpu=gpu, task=task), _print_to_stderr)
    resume_run(place, None, _print_to_stderr, worlds.append, setup)


def _print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(parent: str, what: str, *words: str) -> int:
    """Do it, and tell by the exit code what came of it."""
    if os.getppid() != int(parent):
        return EXIT_FAULT  # who died before it could be arranged that we die, too
    try:
        print_agent_traits(*words) if what == "traits" else continue_run(Path(words[0]), *words[1:])
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
    os._exit(code)  # whatever threads an agent has left behind
