"""A run whose steps come from outside: opened, stepped by whoever holds it, closed, graded."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, RunOver
from mlagentbench.formatting import format_duration
from mlagentbench.records import AgentSpec, Call, Result, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import EnvironmentCallback, finish_run, open_environment, populate_workspace
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import ModelsByRole, create_run, load_models, prepare_resume
from mlagentbench.system.progress import ProgressCallback


class Session:
    """One run that is open; calls may come from any thread, and are served in turn."""

    def __init__(self, setup: Setup, folder: RunFolder, env: Environment) -> None:
        self.setup, self.folder, self.env = setup, folder, env
        self.result: Result | None = None  # once it is graded
        self.suspended = False  # whether it was left to be resumed
        self._lock = RLock()

    @property
    def done(self) -> bool:
        """Whether it takes no more steps."""
        return self.env.done or self.suspended or bool(self.result or self.env.fault)

    @property
    def remaining_budget(self) -> str:
        """What is left of it, in words."""
        steps = self.env.spec.limits.steps - len(self.env.steps)
        return (
            f"{steps} of {self.env.spec.limits.steps} steps and {format_duration(self.env.seconds_left)} left"
        )

    def step(self, call: Call) -> Step:
        """Do one action; after the end it is RunOver."""
        with self._lock:
            if self.env.done or self.result:
                raise RunOver(f"the run is over: {self.result.ending if self.result else self.env.ending}")
            self.env.step(call)
            return self.env.steps[-1]

    def finish(self, note: str = "") -> Result:
        """Grade what is there now, and write the result; once. A note says how whoever took the steps failed."""
        with self._lock:
            if self.result is None:
                self.result = finish_run(self.setup, self.env, self.folder, note, self.env.fault)
            return self.result

    def suspend(self) -> None:
        """Grade nothing when the session closes: a step under way is cut off, and the run can be resumed."""
        self.suspended = True
        self.env.stop_token.request()

    def close(self) -> None:
        """End everything that still runs; a step that another thread is at is cut off."""
        self.env.stop_token.request()
        with self._lock:
            self.env.close()


@contextmanager
def open_session(
    setup: Setup,
    agent_spec: AgentSpec | str,
    out: Path,
    seed: int = 0,
    limits: dict[str, Any] | None = None,
    models: ModelsByRole | None = None,
    on_open: EnvironmentCallback | None = None,
) -> Iterator[Session]:
    """A new run in a new folder: graded at the end of the block, and left to be resumed if the block raises.

    `who` names the outsider in the record; `models` are asked by actions that need one, else those that `who` names.
    """
    agent_spec = AgentSpec(agent=agent_spec) if isinstance(agent_spec, str) else agent_spec
    models = load_models(agent_spec) if models is None else models
    folder = create_run(setup, agent_spec, out, seed, limits or {}, models=models)
    with folder.lock(), _serve_session(setup, folder, models, on_open) as opened:
        yield opened


@contextmanager
def reopen_session(
    path: Path,
    progress: ProgressCallback,
    from_step: int | None = None,
    setup: Setup | None = None,
    models: ModelsByRole | None = None,
    on_open: EnvironmentCallback | None = None,
) -> Iterator[Session]:
    """A run that was left or killed, where its record ends; what was done is not done again."""
    folder = RunFolder(path)
    with folder.lock():
        setup = prepare_resume(folder, from_step, progress, setup)
        folder.rewind(from_step)
        models = load_models(folder.spec) if models is None else models
        with _serve_session(setup, folder, models, on_open) as opened:
            yield opened


@contextmanager
def _serve_session(
    setup: Setup, folder: RunFolder, models: ModelsByRole, on_open: EnvironmentCallback | None
) -> Iterator[Session]:
    env = open_environment(setup, folder, models=models)
    if on_open:
        on_open(env)
    opened = Session(setup, folder, env)
    try:
        if not env.next_recorded_call:
            populate_workspace(env, setup)
        while env.next_recorded_call:
            env.step(env.next_recorded_call)
        yield opened
        if not opened.suspended:
            opened.finish()
    except Fault:
        if env.fault:
            opened.finish()
        raise
    finally:
        opened.close()
