"""Runs jobs on this machine: as threads of this process, and apart from it where that could end."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Protocol

from mlagentbench.environment import Environment
from mlagentbench.errors import UsageError
from mlagentbench.grading.grade import Grade
from mlagentbench.preparation.download import Say
from mlagentbench.records import Hashes
from mlagentbench.runner.batch.apart import Apart
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import account
from mlagentbench.runner.setup import Setup, set_up
from mlagentbench.runner.start import begin, proceed
from mlagentbench.sandbox.choose import sandbox

LEFTOVERS = (".run-", "agent.py")  # of a beginning that was cut off


class Runner(Protocol):
    """Whatever brings jobs to their end: this machine, or many."""

    def run(self, job: Job, gpu: str) -> Path:
        """Go on with a job as far as it comes, and say where its folder lies: that tells what came of it.

        What cannot be begun is a UsageError; what cannot even be recorded, a Fault.
        """

    def stop(self) -> None:
        """Let all jobs stop at their next moment; `run` then returns."""


class Local:
    """Agents of ours are threads; those from files, and runs during which the last process died, are processes."""

    def __init__(self, out: Path, setups: dict[str, Setup], suspects: Iterable[str] = ()) -> None:
        self.out, self.setups, self.suspects = out, setups, set(suspects)
        self._hashes = {name: setup.hashes for name, setup in setups.items()}
        self._lock = Lock()
        self._stops: set[Callable[[], None]] = set()
        self._stopped = False

    def run(self, job: Job, gpu: str) -> Path:
        """Begin or go on."""
        place = self.out / job.name
        self.work(job, place, gpu, apart=job.name in self.suspects)
        return place

    def work(self, job: Job, place: Path, gpu: str, apart: bool) -> None:
        """The same in any folder."""
        setup = self.setups[job.setting]
        setup = replace(setup, sandbox=sandbox(job.sandbox, gpu), ledger=job.ledger)
        if not (place / "run.json").is_file():
            self._unchanged(job, setup.hashes)
            _clear(place)
            begin(setup, job.who, place, job.seed, job.limits)
        if job.who.agent.endswith(".py") or apart:
            self._apart(place, gpu, setup)
        else:
            self._here(place, setup)

    def stop(self) -> None:
        """All of them, and whatever begins later."""
        with self._lock:
            self._stopped = True
            for stop in self._stops:
                stop()

    def _unchanged(self, job: Job, now: Hashes) -> None:
        if differing := different(self._hashes[job.setting], now):
            raise UsageError(f"the {differing} of {job.task} changed while the batch ran")

    def _here(self, place: Path, setup: Setup) -> None:
        stops: list[Callable[[], None]] = []

        def attend(env: Environment) -> None:
            stops.append(env.stopping.ask)
            self._add(env.stopping.ask)

        try:
            proceed(place, None, _quiet, attend, setup)
        except KeyboardInterrupt:  # it was asked to stop, and goes on another time
            pass
        finally:
            with self._lock:
                self._stops -= set(stops)

    def _apart(self, place: Path, gpu: str, setup: Setup) -> None:
        child = Apart(place, gpu, setup.task.folder)
        self._add(child.stop)
        try:
            trouble = child.wait()
        finally:
            with self._lock:
                self._stops.discard(child.stop)
        if trouble:
            note_death(place, trouble)

    def _add(self, stop: Callable[[], None]) -> None:
        with self._lock:
            self._stops.add(stop)
            if self._stopped:
                stop()


def note_death(place: Path, trouble: str) -> None:
    """Record a death as what it is: a fault of this try."""
    folder = RunFolder(place)
    with folder.lock():
        result = folder.result
        if result is None:
            found = account(folder, list(folder.steps()), "fault", Grade())
            folder.finish(found.but(note=trouble))


def _clear(place: Path) -> None:
    """Remove what is left of a beginning that was cut off; anything else is not ours to remove."""
    for path in place.iterdir() if place.is_dir() else ():
        if path.name.startswith(LEFTOVERS):
            path.unlink()


def _quiet(line: str) -> None:
    pass


def different(before: Hashes, now: Hashes) -> str:
    """What is not as it was, in words."""
    known = before.model_dump()
    return " and ".join(name for name, value in now.model_dump().items() if known[name] != value)


def ready(jobs: Iterable[Job], say: Say) -> dict[str, Setup]:
    """Task, data and runtime of all the jobs, made once where they are missing."""
    found: dict[str, Setup] = {}
    for job in jobs:
        if job.setting not in found:
            found[job.setting] = set_up(job.task, job.edition, job.sandbox, say, job.instance)
    return found
