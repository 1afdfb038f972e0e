"""Runs whose steps are taken by the caller: an outside program, a notebook, a Gym environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, RLock
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
    """An open run. Calls may come from any thread and are executed one at a time.

    Attributes:
        run_folder: The record of the run.
        result: The result once the run is graded, else None.
        suspended: Whether `suspend` was called, so that the run is not graded and can be resumed.
    """

    def __init__(self, setup: Setup, folder: RunFolder, env: Environment) -> None:
        self.setup, self.run_folder, self.env = setup, folder, env
        self.result: Result | None = None
        self.suspended = False
        self._lock = RLock()

    @property
    def folder(self) -> Path:
        """The path of the run folder."""
        return self.run_folder.path

    @property
    def done(self) -> bool:
        """Whether no more steps can be taken."""
        return self.env.done or self.suspended or bool(self.result or self.env.fault)

    @property
    def remaining_budget(self) -> str:
        """The steps and the time that are left, as text."""
        max_steps = self.env.spec.limits.steps
        steps_left, time_left = max_steps - len(self.env.steps), format_duration(self.env.seconds_left)
        return f"{steps_left} of {max_steps} steps and {time_left} left"

    def step(self, call: Call, cancel: Event | None = None) -> Step:
        """Execute one action.

        Args:
            call: The action and its arguments.
            cancel: Set by another thread, it terminates the script or REPL command of the step. The step is
                recorded, and the run goes on.

        Returns:
            The step, with its observation.

        Raises:
            RunOver: The run has ended.
            Fault: The harness failed; the run has no score.
            Stopped: Another thread suspended or closed the session.
        """
        with self._lock:
            if self.env.done or self.result:
                ending = self.result.ending if self.result else self.env.ending
                raise RunOver(f"The run is over: {ending}")
            with self.env.context.stop_token.cancellable_by(cancel or Event()):
                self.env.step(call)
            return self.env.steps[-1]

    def finish(self, note: str = "") -> Result:
        """Grade the workspace and write result.json; a second call returns the same result.

        Args:
            note: How the program that took the steps failed, if it did. The ending is then "crashed".

        Returns:
            The result.
        """
        with self._lock:
            if self.result is None:
                self.result = finish_run(self.setup, self.env, self.run_folder, note, self.env.fault)
            return self.result

    def suspend(self) -> None:
        """Leave the run ungraded, so that it can be resumed. A step in progress is interrupted."""
        self.suspended = True
        self.env.stop_token.request()

    def close(self) -> None:
        """Interrupt a step in progress and terminate all processes of the run."""
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
    """Open a new run as a context manager.

    The run is graded at the end of the block. If the block raises, it is not graded and can be resumed.

    Args:
        setup: The task, its data, the runtime and the sandbox.
        agent_spec: Who takes the steps, for the record: a name, or a name with options and models.
        out: The new run folder. It must be empty or not exist.
        seed: The seed that is recorded.
        limits: Fields of `Limits` that replace those of the task.
        models: Models for actions that need one; by default those that `agent_spec` names.
        on_open: Called once with the environment before the first step.
    """
    agent_spec = AgentSpec(agent=agent_spec) if isinstance(agent_spec, str) else agent_spec
    models = load_models(agent_spec) if models is None else models
    folder = create_run(setup, agent_spec, out, seed, limits or {}, models=models)
    with folder.lock(), _serve_session(setup, folder, models, on_open) as session:
        yield session


@contextmanager
def reopen_session(
    path: Path,
    progress: ProgressCallback,
    from_step: int | None = None,
    setup: Setup | None = None,
    models: ModelsByRole | None = None,
    on_open: EnvironmentCallback | None = None,
) -> Iterator[Session]:
    """Open a suspended or killed run again, as a context manager.

    Recorded steps are replayed from the record, not executed again.

    Args:
        path: The run folder.
        progress: Called with a line of text before each slow operation.
        from_step: Drop all later steps and continue after this one; by default, continue after the last step.
        setup: The setup, if the caller has it already.
        models: Models for actions that need one; by default those of the record.
        on_open: Called once with the environment before the first step.
    """
    folder = RunFolder(path)
    with folder.lock():
        setup = prepare_resume(folder, from_step, progress, setup)
        folder.rewind(from_step)
        models = load_models(folder.spec) if models is None else models
        with _serve_session(setup, folder, models, on_open) as session:
            yield session


@contextmanager
def _serve_session(
    setup: Setup, folder: RunFolder, models: ModelsByRole, on_open: EnvironmentCallback | None
) -> Iterator[Session]:
    env = open_environment(setup, folder, models=models)
    if on_open:
        on_open(env)
    session = Session(setup, folder, env)
    try:
        if not env.next_recorded_call:
            populate_workspace(env, setup)
        while env.next_recorded_call:
            env.step(env.next_recorded_call)
        yield session
        if not session.suspended:
            session.finish()
    except Fault:
        if env.fault:
            session.finish()
        raise
    finally:
        session.close()
