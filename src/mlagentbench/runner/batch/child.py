"""The process of one run: goes on with a run folder, or tells what kind of agent a file holds."""

import os
import signal
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType

from mlagentbench.agents import base as agents
from mlagentbench.environment import Environment
from mlagentbench.errors import Fault, UsageError
from mlagentbench.records import Contestant
from mlagentbench.runner.batch.apart import DONE, FAULT, REFUSED, STOPPED, Traits
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import set_up_again
from mlagentbench.runner.start import proceed


def tell(sandbox: str) -> None:
    """The traits of an agent."""
    who = Contestant.model_validate_json(sys.stdin.read())
    with redirect_stdout(sys.stderr):
        kind = agents.load(who.agent)
        agents.make(kind, 0, who.options, sandbox)
    found = Traits(needs_model=kind.needs_model, interactive=kind.interactive)
    print(found.model_dump_json(), end="", flush=True)


def go_on(place: Path, gpu: str, task: str) -> None:
    """The run, to its end or until somebody asks it to stop."""
    worlds: list[Environment] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for env in worlds:
            env.stopping.ask()  # should the agent catch even what is raised here
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    setup = set_up_again(RunFolder(place).spec.but(gpu=gpu, task=task), _say)
    proceed(place, None, _say, worlds.append, setup)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(parent: str, what: str, *words: str) -> int:
    """Do it, and tell by the exit code what came of it."""
    if os.getppid() != int(parent):
        return FAULT  # who died before it could be arranged that we die, too
    try:
        tell(*words) if what == "traits" else go_on(Path(words[0]), *words[1:])
    except KeyboardInterrupt:
        return STOPPED
    except UsageError as error:
        _say(str(error))
        return REFUSED
    except (Fault, OSError) as error:
        _say(f"{type(error).__name__}: {error}")
        return FAULT
    return DONE


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # whatever threads an agent has left behind
