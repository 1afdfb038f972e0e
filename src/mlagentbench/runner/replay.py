"""Runs an agent again against its own record and checks that it takes the same steps."""

import shutil
import sys
from contextlib import redirect_stdout

from mlagentbench.agents import base as agents
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, RunOver
from mlagentbench.models.base import Model
from mlagentbench.records import Call, Prompt, Reply, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import open_environment
from mlagentbench.runner.setup import Setup
from mlagentbench.system.cache import temporary_dir

# Everything that a replay reads of the run.
REPLAYED_FILES = ("run.json", "trace.jsonl", "model_calls.jsonl")


class UnavailableModel(Model):
    """Stands in for the models of the run: during a replay only the record answers."""

    def reply(self, prompt: Prompt) -> Reply:
        """Refuse: the record has no reply to this prompt."""
        raise RunOver("End of the record")


class ReplayEnvironment(Environment):
    """Returns recorded observations and executes nothing."""

    def _run_step(self, call: Call, problem: str) -> Step:
        raise RunOver("End of the record")

    def _replay_step(self, call: Call) -> Step:
        if self.next_recorded_call and call.thought != self.next_recorded_call.thought:
            raise Fault(f"Replay diverged at step {len(self.steps) + 1}: the thought is not the recorded one")
        return super()._replay_step(call)

    def _finish_replay(self) -> None:
        pass


def replay(folder: RunFolder, setup: Setup) -> str:
    """Run the agent against its record.

    Returns:
        Where the replay diverged from the record, or an empty string if it did not.
    """
    with redirect_stdout(sys.stderr):  # stdout is for results; an agent may print anything
        return _find_divergence(folder, setup)


def _find_divergence(folder: RunFolder, setup: Setup) -> str:
    spec = folder.spec
    agent_class = agents.load_agent_class(str(folder.agent_file or spec.agent))
    agent = agents.instantiate_agent(agent_class, spec.seed, spec.options)
    agent.models = dict.fromkeys(spec.models_by_role, UnavailableModel())
    with temporary_dir() as copy:
        for name in REPLAYED_FILES:
            if (folder.path / name).is_file():
                shutil.copyfile(folder.path / name, copy / name)
        env = _open_replay_environment(setup, RunFolder(copy), agent)
        try:
            agent.run(env)
        except RunOver:
            pass
        except Fault as fault:
            return str(fault)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an agent is arbitrary code
            # After its last step an agent may crash: the recorded run may have ended the same way.
            return f"{type(error).__name__}: {error}" if env.next_recorded_call else ""
        if env.next_recorded_call:
            return f"The agent stops after step {len(env.steps)}, but the record has more steps"
        return ""


def _open_replay_environment(setup: Setup, folder: RunFolder, agent: agents.Agent) -> ReplayEnvironment:
    context = open_environment(setup, folder, None, agent.models).context
    return ReplayEnvironment(setup.task, folder.spec, context, folder.trace, folder.steps())
