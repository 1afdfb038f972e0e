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

from mlagentbench.adapters.inspect.events import SOURCE, note_of
from mlagentbench.adapters.inspect.listening import Listener, take_down
from mlagentbench.adapters.inspect.models import main_model, models
from mlagentbench.adapters.inspect.talk import messages_of
from mlagentbench.adapters.inspect.threads import in_thread
from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.errors import Fault, Stopped, UsageError
from mlagentbench.records import Call, Contestant, Result, Step
from mlagentbench.runner.run import work
from mlagentbench.runner.session import Session, session
from mlagentbench.runner.setup import set_up
from mlagentbench.stopping import Stopping
from mlagentbench.words import say

PLACE = "run_folder"  # in a sample's metadata
PATIENCE = 120  # seconds for an agent to notice that it was stopped
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Terms:
    """What is asked of every sample of a task."""

    task: str
    who: Contestant
    runs: Path
    edition: str = "open"
    instance: str = ""
    isolation: str = "bwrap"
    gpu: str = ""
    limits: dict[str, Any] = field(default_factory=dict)


class Attempt:
    """A session that Inspect holds; it works in threads, one at a time."""

    open: dict[str, "Attempt"] = {}  # noqa: RUF012 - by the sample's own name, which no two have

    def __init__(self, state: TaskState) -> None:
        self.session: Session
        self.over: LimitExceededError | None = None  # the limit of Inspect's that ended it
        self.talking = False  # whether what is done is told in the sample's messages by us
        self._state = state
        self._note = ""
        self._listener = Listener()
        self._held = ExitStack()
        self._busy, self._closing = Lock(), Lock()
        self._closed = False
        Attempt.open[state.uuid] = self

    @classmethod
    def of(cls, state: TaskState) -> "Attempt":
        """The one that was opened for a sample."""
        if state.uuid not in cls.open:
            raise UsageError("no run was opened for this sample")
        return cls.open[state.uuid]

    async def begin(self, terms: Terms) -> None:
        """Open the run; what is missing is made ready first."""
        main, asked = main_model(), models(self._halt)
        named = {f"{role}_model": model.argument for role, model in asked.items() if role != "main"}
        who = terms.who.but(model=str(main), **named)
        folder = _new(terms.runs / f"{Path(terms.task).name}-{terms.who.agent}-{self._state.uuid}")
        self._state.metadata[PLACE] = str(folder)

        def enter() -> None:
            setup = set_up(terms.task, terms.edition, terms.isolation, say, terms.instance, terms.gpu)
            opened = session(setup, who, folder, self._state.epoch, terms.limits, asked, self._watch)
            self.session = self._held.enter_context(opened)
            with self._closing:
                unwanted = self._closed
            if unwanted:
                self._leave()

        await in_thread(enter)

    async def step(self, call: Call) -> Step:
        """One action; a fault of ours ends the sample."""
        overheard = self._listener.news()

        def act() -> Step | None:
            with self._busy:
                try:
                    take_down(overheard, self.session.env.ledger)
                    return self.session.step(call)
                except Stopped:  # which would end the whole evaluation, as a Ctrl-C would
                    return None

        step = await self._unless_cancelled(act)
        self._listener.news()  # what the action itself asked is recorded already
        if step is None:
            raise self.over or UsageError(f"somebody asked the run to stop: {self.session.folder.path}")
        return step

    async def play(self, agent: Agent) -> None:
        """Let an agent of ours work to its end."""

        def act() -> bool:
            env = self.session.env
            with self._busy:
                try:
                    agent.prepare()
                    env.ledger.in_order = agent.begins_again
                    self._note = work(agent, env, self.session.folder)
                except Stopped:
                    return False
            return True

        self.talking = True
        if not await self._unless_cancelled(act):
            raise self.over or UsageError(f"somebody asked the run to stop: {self.session.folder.path}")

    async def _unless_cancelled(self, act: Callable[[], Answer]) -> Answer:
        try:
            return await in_thread(act)
        except anyio.get_cancelled_exc_class():
            self.session.env.stopping.ask()  # a script that runs is cut off, and what was before it is graded
            raise

    async def finish(self) -> Result:
        """Grade what there is, when the step under way has been cut off."""
        overheard = [] if self.talking else self._listener.news()

        def act() -> Result:
            with self._idle():
                if self.session.result is None:
                    take_down(overheard, self.session.env.ledger)
                self.session.env.stopping = Stopping(self.session.folder.path)
                return self.session.finish(self._note)

        return await in_thread(act)

    async def close(self) -> None:
        """Give back all; a run that was not graded can be graded later."""
        Attempt.open.pop(self._state.uuid, None)
        with self._closing:
            self._closed = True
        if hasattr(self, "session"):
            await in_thread(self._leave)

    def _leave(self) -> None:
        if self.session.result is None and not self.session.env.fault:
            self.session.leave()
        with self._idle():
            self._held.close()

    @contextmanager
    def _idle(self) -> Iterator[None]:
        """Wait until what was cut off has ended; nobody can end an agent that hears nothing."""
        if not self._busy.acquire(timeout=PATIENCE):
            raise Fault("the agent was told to stop, and goes on")
        try:
            yield
        finally:
            self._busy.release()

    def _halt(self, over: LimitExceededError) -> None:
        self.over = over
        self.session.env.stopping.ask()

    def _watch(self, env: Environment) -> None:
        env.on_step = partial(self._tell, env)

    def _tell(self, env: Environment, step: Step) -> None:
        """Note a step in the transcript, where it can be found by its number and by what the workspace was then."""
        told = note_of(step, env.world.store)

        def note() -> None:
            transcript().info(told, source=SOURCE)
            if self.talking:
                self._state.messages.extend(messages_of(step, env.spec.model))

        try:
            from_thread.run_sync(note)
        except LimitExceededError as over:
            self._halt(over)
            raise Stopped(str(over)) from over


def _new(place: Path) -> Path:
    """A folder that is not there yet: a sample may be tried again."""
    tries = (place.with_name(f"{place.name}-{number}") for number in range(2, 1000))
    return next(path for path in (place, *tries) if not path.exists())
