"""Lets an agent go through its own record again, with nothing else to go by: does it come to the same steps?"""

import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path

from mlagentbench.agents import base as agents
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, RunOver
from mlagentbench.models.base import Model
from mlagentbench.records import Call, Prompt, Reply, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import open_environment
from mlagentbench.runner.setup import Setup
from mlagentbench.system.cache import temporary_dir

REPLAYED_FILES = ("run.json", "trace.jsonl", "model_calls.jsonl")


class UnavailableModel(Model):
    """A model that is not there: only the record answers."""

    def reply(self, prompt: Prompt) -> Reply:
        """Nothing."""
        raise RunOver("the record ends here")


class ReplayEnvironment(Environment):
    """An environment in which nothing happens that did not happen before."""

    def _run_step(self, call: Call, problem: str) -> Step:
        raise RunOver("the record ends here")

    def _replay_step(self, call: Call) -> Step:
        if self.next_recorded_call and call.thought != self.next_recorded_call.thought:
            raise Fault(
                f"the agent does not repeat itself: the reason that it gives for step {len(self.steps) + 1}"
            )
        return super()._replay_step(call)

    def _finish_replay(self) -> None:
        pass


def replay(folder: RunFolder, setup: Setup) -> str:
    """What is different when the agent does it again; nothing, if it comes to the same steps."""
    with redirect_stdout(sys.stderr):  # what an agent prints is no result
        return _find_divergence(folder, setup)


def _find_divergence(folder: RunFolder, setup: Setup) -> str:
    spec = folder.spec
    agent = agents.instantiate_agent(
        agents.load_agent_class(str(folder.agent_file or spec.agent)), spec.seed, spec.options
    )
    agent.models = dict.fromkeys(spec.models_by_role, UnavailableModel())
    with temporary_dir() as place:
        for name in REPLAYED_FILES:
            if (folder.path / name).is_file():
                shutil.copyfile(folder.path / name, place / name)
        env = _open_replay_environment(setup, place, agent)
        try:
            agent.run(env)
        except RunOver:
            pass
        except Fault as fault:
            return str(fault)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an agent is anybody's code, and may have crashed then
            if not env.next_recorded_call:
                return ""
            return f"{type(error).__name__}: {error}"
        left = len(env.steps)
        return (
            f"the agent stops after step {left}, where the record goes on" if env.next_recorded_call else ""
        )


def _open_replay_environment(setup: Setup, place: Path, agent: agents.Agent) -> ReplayEnvironment:
    copy = RunFolder(place)
    world = open_environment(setup, copy, None, agent.models).context
    return ReplayEnvironment(setup.task, copy.spec, world, copy.trace, copy.steps())
