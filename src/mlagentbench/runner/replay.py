"""Lets an agent go through its own record again, with nothing else to go by: does it come to the same steps?"""

import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path

from mlagentbench.agents import base as agents
from mlagentbench.environment import Environment
from mlagentbench.errors import Fault, RunOver
from mlagentbench.home import scratch
from mlagentbench.models.base import Model
from mlagentbench.records import Call, Prompt, Reply, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import enter
from mlagentbench.runner.setup import Setup

RECORD = ("run.json", "trace.jsonl", "model_calls.jsonl")


class Mute(Model):
    """A model that is not there: only the record answers."""

    def reply(self, prompt: Prompt) -> Reply:
        """Nothing."""
        raise RunOver("the record ends here")


class Past(Environment):
    """An environment in which nothing happens that did not happen before."""

    def _done(self, call: Call, problem: str) -> Step:
        raise RunOver("the record ends here")

    def _replayed(self, call: Call) -> Step:
        if self.replaying and call.thought != self.replaying.thought:
            raise Fault(f"the agent does not repeat itself: the reason that it gives for step {len(self.steps) + 1}")
        return super()._replayed(call)

    def _go_live(self) -> None:
        pass


def replay(folder: RunFolder, setup: Setup) -> str:
    """What is different when the agent does it again; nothing, if it comes to the same steps."""
    with redirect_stdout(sys.stderr):  # what an agent prints is no result
        return _difference(folder, setup)


def _difference(folder: RunFolder, setup: Setup) -> str:
    spec = folder.spec
    agent = agents.make(agents.load(str(folder.agent_file or spec.agent)), spec.seed, spec.options)
    agent.models = dict.fromkeys(spec.roles, Mute())
    with scratch() as place:
        for name in RECORD:
            if (folder.path / name).is_file():
                shutil.copyfile(folder.path / name, place / name)
        env = _past(setup, place, agent)
        try:
            agent.run(env)
        except RunOver:
            pass
        except Fault as fault:
            return str(fault)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an agent is anybody's code, and may have crashed then
            if not env.replaying:
                return ""
            return f"{type(error).__name__}: {error}"
        left = len(env.steps)
        return f"the agent stops after step {left}, where the record goes on" if env.replaying else ""


def _past(setup: Setup, place: Path, agent: agents.Agent) -> Past:
    copy = RunFolder(place)
    world = enter(setup, copy, None, agent.models).world
    return Past(setup.task, copy.spec, world, copy.trace, copy.steps())
