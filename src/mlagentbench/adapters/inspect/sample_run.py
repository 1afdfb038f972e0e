"""One sample's run: opened before its solver, graded by its scorer, closed when the sample is over."""

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
from mlagentbench.records import AgentSpec, Call, Result, Step
from mlagentbench.runner.run import run_agent
from mlagentbench.runner.session import Session, open_session
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.system.stop_token import StopToken

RUN_FOLDER_KEY = "run_folder"  # in a sample's metadata
STOP_TIMEOUT_S = 120  # seconds for an agent to notice that it was stopped
ReturnT = TypeVar("ReturnT")


@dataclass(frozen=True)
class SampleSettings:
    """What is asked of every sample of a task."""

    task: str
    agent: AgentSpec
    runs: Path
    edition: str = "open"
    instance: str = ""
    isolation: str = "bwrap"
    gpu: str = ""
    limits: dict[str, Any] = field(default_factory=dict)


class SampleRun:
    """A session that Inspect holds; it works in threads, one at a time."""

    active: dict[str, "SampleRun"] = {}  # noqa: RUF012 - by the sample's own name, which no two have

    def __init__(self, state: TaskState) -> None:
        self.session: Session
        self.exceeded_limit: LimitExceededError | None = None  # the limit of Inspect's that ended it
        self.writes_messages = False  # whether what is done is told in the sample's messages by us
        self._state = state
        self._note = ""
        self._transcript = TranscriptReader()
        self._exit_stack = ExitStack()
        self._step_lock, self._close_lock = Lock(), Lock()
        self._closed = False
        SampleRun.active[state.uuid] = self

    @classmethod
    def for_sample(cls, state: TaskState) -> "SampleRun":
        """The one that was opened for a sample."""
        if state.uuid not in cls.active:
            raise UsageError("no run was opened for this sample")
        return cls.active[state.uuid]

    async def start(self, terms: SampleSettings) -> None:
        """Open the run; what is missing is made ready first."""
        main, asked = main_model(), models_by_role(self._stop_at_limit)
        named = {f"{role}_model": model.argument for role, model in asked.items() if role != "main"}
        who = terms.agent.replace(model=str(main), **named)
        folder = _find_unused_path(
            terms.runs / f"{Path(terms.task).name}-{terms.agent.agent}-{self._state.uuid}"
        )
        self._state.metadata[RUN_FOLDER_KEY] = str(folder)

        def enter() -> None:
            setup = prepare_setup(
                terms.task, terms.edition, terms.isolation, print_progress, terms.instance, terms.gpu
            )
            opened = open_session(
                setup, who, folder, self._state.epoch, terms.limits, asked, self._observe_steps
            )
            self.session = self._exit_stack.enter_context(opened)
            with self._close_lock:
                unwanted = self._closed
            if unwanted:
                self._release()

        await run_in_thread(enter)

    async def step(self, call: Call) -> Step:
        """One action; a fault of ours ends the sample."""
        overheard = self._transcript.read_new_model_events()

        def act() -> Step | None:
            with self._step_lock:
                try:
                    record_model_calls(overheard, self.session.env)
                    return self.session.step(call)
                except Stopped:  # which would end the whole evaluation, as a Ctrl-C would
                    return None

        step = await self._run_cancellable(act)
        self._transcript.read_new_model_events()  # what the action itself asked is recorded already
        if step is None:
            raise self.exceeded_limit or UsageError(
                f"somebody asked the run to stop: {self.session.folder.path}"
            )
        return step

    async def run_agent(self, agent: Agent) -> None:
        """Let an agent of ours work to its end."""

        def act() -> bool:
            env = self.session.env
            with self._step_lock:
                try:
                    agent.prepare()
                    self._note = run_agent(agent, env, self.session.folder)
                except Stopped:
                    return False
            return True

        self.writes_messages = True
        if not await self._run_cancellable(act):
            raise self.exceeded_limit or UsageError(
                f"somebody asked the run to stop: {self.session.folder.path}"
            )

    async def _run_cancellable(self, act: Callable[[], ReturnT]) -> ReturnT:
        try:
            return await run_in_thread(act)
        except anyio.get_cancelled_exc_class():
            self.session.env.stop_token.request()  # a script that runs is cut off, and what was before it is graded
            raise

    async def finish(self) -> Result:
        """Grade what there is, when the step under way has been cut off."""
        overheard = [] if self.writes_messages else self._transcript.read_new_model_events()

        def act() -> Result:
            with self._when_idle():
                if self.session.result is None:
                    record_model_calls(overheard, self.session.env)
                self.session.env.stop_token = StopToken(self.session.folder.path)
                return self.session.finish(self._note)

        return await run_in_thread(act)

    async def close(self) -> None:
        """Give back all; a run that was not graded can be graded later."""
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
        """Wait until what was cut off has ended; nobody can end an agent that hears nothing."""
        if not self._step_lock.acquire(timeout=STOP_TIMEOUT_S):
            raise Fault("the agent was told to stop, and goes on")
        try:
            yield
        finally:
            self._step_lock.release()

    def _stop_at_limit(self, over: LimitExceededError) -> None:
        self.exceeded_limit = over
        self.session.env.stop_token.request()

    def _observe_steps(self, env: Environment) -> None:
        env.on_step = partial(self._record_step, env)

    def _record_step(self, env: Environment, step: Step) -> None:
        """Note a step in the transcript, where it can be found by its number and by what the workspace was then."""
        told = describe_step(step, env.context.store)

        def note() -> None:
            transcript().info(told, source=EVENT_SOURCE)
            if self.writes_messages:
                self._state.messages.extend(step_to_messages(step, env.spec.model))

        try:
            from_thread.run_sync(note)
        except LimitExceededError as over:
            self._stop_at_limit(over)
            raise Stopped(str(over)) from over


def _find_unused_path(place: Path) -> Path:
    """A folder that is not there yet: a sample may be tried again."""
    tries = (place.with_name(f"{place.name}-{number}") for number in range(2, 1000))
    return next(path for path in (place, *tries) if not path.exists())
