"""A run whose steps come from outside: opened, stepped by whoever holds it, closed, graded."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from mlagentbench.environment import Environment
from mlagentbench.errors import Fault, RunOver
from mlagentbench.preparation.download import Say
from mlagentbench.records import Call, Contestant, Result, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import Watcher, conclude, enter, lay_out
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import Models, begin, models_of, ready
from mlagentbench.words import duration


class Session:
    """One run that is open; calls may come from any thread, and are served in turn."""

    def __init__(self, setup: Setup, folder: RunFolder, env: Environment) -> None:
        self.setup, self.folder, self.env = setup, folder, env
        self.result: Result | None = None  # once it is graded
        self.left = False  # whether it was left to be resumed
        self._turn = RLock()

    @property
    def done(self) -> bool:
        """Whether it takes no more steps."""
        return self.env.done or self.left or bool(self.result or self.env.fault)

    @property
    def budget(self) -> str:
        """What is left of it, in words."""
        steps = self.env.spec.limits.steps - len(self.env.steps)
        return f"{steps} of {self.env.spec.limits.steps} steps and {duration(self.env.seconds_left)} left"

    def step(self, call: Call) -> Step:
        """Do one action; after the end it is RunOver."""
        with self._turn:
            if self.env.done or self.result:
                raise RunOver(f"the run is over: {self.result.ending if self.result else self.env.ending}")
            self.env.step(call)
            return self.env.steps[-1]

    def finish(self, note: str = "") -> Result:
        """Grade what is there now, and write the result; once. A note says how whoever took the steps failed."""
        with self._turn:
            if self.result is None:
                self.result = conclude(self.setup, self.env, self.folder, note, self.env.fault)
            return self.result

    def leave(self) -> None:
        """Grade nothing when the session closes: a step under way is cut off, and the run can be resumed."""
        self.left = True
        self.env.stopping.ask()

    def close(self) -> None:
        """End everything that still runs; a step that another thread is at is cut off."""
        self.env.stopping.ask()
        with self._turn:
            self.env.close()


@contextmanager
def session(
    setup: Setup,
    who: Contestant | str,
    out: Path,
    seed: int = 0,
    limits: dict[str, Any] | None = None,
    models: Models | None = None,
    watch: Watcher | None = None,
) -> Iterator[Session]:
    """A new run in a new folder: graded at the end of the block, and left to be resumed if the block raises.

    `who` names the outsider in the record; `models` are asked by actions that need one, else those that `who` names.
    """
    who = Contestant(agent=who) if isinstance(who, str) else who
    models = models_of(who) if models is None else models
    folder = begin(setup, who, out, seed, limits or {}, models=models)
    with folder.lock(), _opened(setup, folder, models, watch) as opened:
        yield opened


@contextmanager
def resumed(
    path: Path,
    say: Say,
    from_step: int | None = None,
    setup: Setup | None = None,
    models: Models | None = None,
    watch: Watcher | None = None,
) -> Iterator[Session]:
    """A run that was left or killed, where its record ends; what was done is not done again."""
    folder = RunFolder(path)
    with folder.lock():
        setup = ready(folder, from_step, say, setup)
        folder.rewind(from_step)
        models = models_of(folder.spec) if models is None else models
        with _opened(setup, folder, models, watch) as opened:
            yield opened


@contextmanager
def _opened(setup: Setup, folder: RunFolder, models: Models, watch: Watcher | None) -> Iterator[Session]:
    env = enter(setup, folder, models=models)
    if watch:
        watch(env)
    opened = Session(setup, folder, env)
    try:
        if not env.replaying:
            lay_out(env, setup)
        while env.replaying:
            env.step(env.replaying)
        yield opened
        if not opened.left:
            opened.finish()
    except Fault:
        if env.fault:
            opened.finish()
        raise
    finally:
        opened.close()
