"""How verifiers plays an episode: a run folder, our sandbox around its workspace, our grade."""

import asyncio
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from threading import Lock

from verifiers.v1 import AgentConfig, Agents, Env, SingleAgentEnvConfig
from verifiers.v1 import Task as VerifiersTask

from mlagentbench.adapters.verifiers.runtime import BubblewrapRuntime, nominal_config
from mlagentbench.adapters.verifiers.taskset import BenchmarkTaskData
from mlagentbench.formatting import print_progress
from mlagentbench.records import AgentSpec, Start
from mlagentbench.runner.session import Session, open_session
from mlagentbench.runner.setup import Setup, choose_run_folder, prepare_setup

_setup_lock = Lock()  # episodes of one task share its setup


class BenchmarkEnvConfig(SingleAgentEnvConfig):  # type: ignore[misc]  # verifiers is not installed here
    """One agent, always in our sandbox: `--env.agent.runtime` has no effect."""

    agent: AgentConfig = AgentConfig(runtime=nominal_config("default"))


class BenchmarkEnv(Env[BenchmarkEnvConfig]):  # type: ignore[misc]
    """Runs one agent in the sandbox of a run of its own."""

    async def run(self, task: VerifiersTask, agents: Agents) -> None:
        """Open a run, let the agent work in its workspace, and leave the run graded or resumable."""
        stack, agent = ExitStack(), agents.agent
        session = await asyncio.to_thread(_open_run, task.data, agent.ctx.model, stack)
        runtime = BubblewrapRuntime(session)
        try:
            await runtime.start()
            await agent.run(task, runtime=runtime)
        finally:
            await runtime.stop()
            await asyncio.to_thread(_close_run, session, stack)


@cache
def _prepare_setup(task: str, edition: str, instance: str, gpu: str, start: Start) -> Setup:
    return prepare_setup(task, edition, "bwrap", print_progress, instance, gpu, start=start)


def _open_run(data: BenchmarkTaskData, model: str, stack: ExitStack) -> Session:
    with _setup_lock:
        setup = _prepare_setup(data.task, data.edition, data.instance, data.gpu, data.start)
        folder = _reserve_folder(Path(data.runs), setup.task.name)
    spec, limits = AgentSpec(agent="verifiers", model=model), {"hours": data.hours}
    return stack.enter_context(open_session(setup, spec, folder, 0, limits, models={}))


def _reserve_folder(runs: Path, name: str) -> Path:
    """Create a run folder that no other episode uses."""
    stem = choose_run_folder(name, "verifiers").name
    number = 1
    while True:
        folder = runs / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


def _close_run(session: Session, stack: ExitStack) -> None:
    if session.result is None:
        session.suspend()
    stack.close()
