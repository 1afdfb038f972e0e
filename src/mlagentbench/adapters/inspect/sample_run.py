"""The run of one sample: opened before its solver, graded by its scorer, closed when the sample is over."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import anyio
from anyio import from_thread
from inspect_ai.log import transcript
from inspect_ai.solver import TaskState
from inspect_ai.util import LimitExceededError

from mlagentbench.adapters.inspect.events import EVENT_SOURCE, describe_step
from mlagentbench.adapters.inspect.models import main_model, models_by_role
from mlagentbench.adapters.inspect.step_messages import step_to_messages
from mlagentbench.adapters.inspect.threads import run_in_thread
from mlagentbench.adapters.inspect.transcript_reader import TranscriptReader, record_model_calls
from mlagentbench.agents.base import Agent
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, Stopped, UsageError
from mlagentbench.formatting import print_progress
from mlagentbench.records import AgentSpec, Call, Result, Start, Step
from mlagentbench.runner.run import run_agent
from mlagentbench.runner.session import Session, open_session
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.system.stop_token import StopToken

RUN_FOLDER_KEY = "run_folder"  # in a sample's metadata
STOP_TIMEOUT_S = 120  # for an agent to react to a stop request
ReturnT = TypeVar("ReturnT")


@dataclass(frozen=True)
class SampleSettings:
    """The settings that all samples of a task share."""

    task: str
    agent: AgentSpec
    runs: Path
    edition: str = "open"
    instance: str = ""
    start: Start = "starter"
    isolation: str = "bwrap"
    gpu: str = ""
    limits: dict[str, Any] = field(default_factory=dict)


class SampleRun:
    """A session held by Inspect. Its work is done in threads, one at a time."""

    active: dict[str, "SampleRun"] = {}  # noqa: RUF012 - by the sample's unique id

    def __init__(self, state: TaskState) -> None:
        self.session: Session
        self.exceeded_limit: LimitExceededError | None = None  # Inspect's limit that ended it
        self.writes_messages = False  # whether we add the steps to the sample's messages
        self._state = state
        self._note = ""
        self._transcript = TranscriptReader()
        self._exit_stack = ExitStack()
        self._step_lock, self._close_lock = Lock(), Lock()
        self._closed = False
        SampleRun.active[state.uuid] = self

    @classmethod
    def for_sample(cls, state: TaskState) -> "SampleRun":
        """The open run of a sample."""
        if state.uuid not in cls.active:
            raise UsageError("No run was opened for this sample.")
        return cls.active[state.uuid]

    async def start(self, settings: SampleSettings) -> None:
        """Open the run, after preparing what it needs."""
        main, models = main_model(), models_by_role(self._stop_at_limit)
        other_models = {f"{role}_model": model.argument for role, model in models.items() if role != "main"}
        agent = settings.agent.replace(model=str(main), **other_models)
        name = f"{Path(settings.task).name}-{agent.agent}-{self._state.uuid}"
        folder = _find_unused_path(settings.runs / name)
        self._state.metadata[RUN_FOLDER_KEY] = str(folder)

        def open_run() -> None:
            setup = prepare_setup(
                settings.task,
                settings.edition,
                settings.isolation,
                print_progress,
                settings.instance,
                settings.gpu,
                start=settings.start,
            )
            session = open_session(
                setup, agent, folder, self._state.epoch, settings.limits, models, self._observe_steps
            )
            self.session = self._exit_stack.enter_context(session)
            with self._close_lock:
                closed = self._closed  # the sample was cancelled meanwhile
            if closed:
                self._release()

        await run_in_thread(open_run)

    async def step(self, call: Call) -> Step:
        """Take one step; a fault ends the sample."""
        model_events = self._transcript.read_new_model_events()

        def take_step() -> Step | None:
            with self._step_lock:
                try:
                    record_model_calls(model_events, self.session.env)
                    return self.session.step(call)
                except Stopped:  # would end the whole evaluation, like Ctrl-C
                    return None

        step = await self._run_cancellable(take_step)
        self._transcript.read_new_model_events()  # model calls of the action itself are recorded already
        if step is None:
            raise self._stop_error()
        return step

    async def run_agent(self, agent: Agent) -> None:
        """Run an agent of the benchmark to its end."""

        def run() -> bool:
            env = self.session.env
            with self._step_lock:
                try:
                    agent.prepare()
                    self._note = run_agent(agent, env, self.session.run_folder)
                except Stopped:
                    return False
            return True

        self.writes_messages = True
        if not await self._run_cancellable(run):
            raise self._stop_error()

    def _stop_error(self) -> Exception:
        message = f"The run was stopped on request: {self.session.folder}"
        return self.exceeded_limit or UsageError(message)

    async def _run_cancellable(self, work: Callable[[], ReturnT]) -> ReturnT:
        try:
            return await run_in_thread(work)
        except anyio.get_cancelled_exc_class():
            # A running script is terminated; the state before it is graded.
            self.session.env.stop_token.request()
            raise

    async def finish(self) -> Result:
        """Grade the run, once the current step has been terminated."""
        model_events = [] if self.writes_messages else self._transcript.read_new_model_events()

        def grade() -> Result:
            with self._when_idle():
                if self.session.result is None:
                    record_model_calls(model_events, self.session.env)
                self.session.env.stop_token = StopToken(self.session.folder)
                return self.session.finish(self._note)

        return await run_in_thread(grade)

    async def close(self) -> None:
        """Release everything; a run that was not graded can be graded later."""
        SampleRun.active.pop(self._state.uuid, None)
        with self._close_lock:
            self._closed = True
        if hasattr(self, "session"):
            await run_in_thread(self._release)

    def _release(self) -> None:
        if self.session.result is None and not self.session.env.fault:
            self.session.suspend()
        with self._when_idle():
            self._exit_stack.close()

    @contextmanager
    def _when_idle(self) -> Iterator[None]:
        """Wait until the terminated step has ended; an agent that ignores the request cannot be ended."""
        if not self._step_lock.acquire(timeout=STOP_TIMEOUT_S):
            raise Fault(f"The agent is still running {STOP_TIMEOUT_S} s after it was asked to stop.")
        try:
            yield
        finally:
            self._step_lock.release()

    def _stop_at_limit(self, error: LimitExceededError) -> None:
        self.exceeded_limit = error
        self.session.env.stop_token.request()

    def _observe_steps(self, env: Environment) -> None:
        env.on_step = partial(self._record_step, env)

    def _record_step(self, env: Environment, step: Step) -> None:
        """Add a step to the transcript, with its number and the hash of its snapshot."""
        description = describe_step(step, env.context.store)

        def record() -> None:
            transcript().info(description, source=EVENT_SOURCE)
            if self.writes_messages:
                self._state.messages.extend(step_to_messages(step, env.spec.model))

        try:
            from_thread.run_sync(record)
        except LimitExceededError as error:
            self._stop_at_limit(error)
            raise Stopped(str(error)) from error


def _find_unused_path(path: Path) -> Path:
    """A path that does not exist yet: Inspect may retry a sample."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in range(2, 1000))
    return next(candidate for candidate in (path, *numbered) if not candidate.exists())
