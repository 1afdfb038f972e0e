"""Runs jobs on this machine: as threads of this process, and apart from it where that could end."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Protocol

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import UsageError
from mlagentbench.grading.grade import Grade
from mlagentbench.records import Hashes
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.subprocess_runner import RunProcess
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import build_result
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.start import create_run, resume_run
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.system.progress import ProgressCallback

PARTIAL_FILE_PREFIXES = (".run-", "agent.py")  # of a beginning that was cut off


class JobRunner(Protocol):
    """Whatever brings jobs to their end: this machine, or many."""

    def run(self, job: Job, gpu: str) -> Path:
        """Go on with a job as far as it comes, and say where its folder lies: that tells what came of it.

        What cannot be begun is a UsageError; what cannot even be recorded, a Fault.
        """

    def stop(self) -> None:
        """Let all jobs stop at their next moment; `run` then returns."""


class LocalRunner:
    """Agents of ours are threads; those from files, and runs during which the last process died, are processes."""

    def __init__(self, out: Path, setups: dict[str, Setup], crash_suspects: Iterable[str] = ()) -> None:
        self.out, self.setups, self.crash_suspects = out, setups, set(crash_suspects)
        self._hashes = {name: setup.hashes for name, setup in setups.items()}
        self._lock = Lock()
        self._stops: set[Callable[[], None]] = set()
        self._stopped = False

    def run(self, job: Job, gpu: str) -> Path:
        """Begin or go on."""
        place = self.out / job.name
        self.run_in_folder(job, place, gpu, in_subprocess=job.name in self.crash_suspects)
        return place

    def run_in_folder(self, job: Job, place: Path, gpu: str, in_subprocess: bool) -> None:
        """The same in any folder."""
        setup = self.setups[job.setup_key]
        setup = replace(setup, sandbox=create_sandbox(job.sandbox, gpu), record_access=job.record_access)
        if not (place / "run.json").is_file():
            self._require_unchanged(job, setup.hashes)
            _remove_partial_files(place)
            create_run(setup, job.agent_spec, place, job.seed, job.limits)
        if job.agent_spec.agent.endswith(".py") or in_subprocess:
            self._run_in_subprocess(place, gpu, setup)
        else:
            self._run_in_thread(place, setup)

    def stop(self) -> None:
        """All of them, and whatever begins later."""
        with self._lock:
            self._stopped = True
            for stop in self._stops:
                stop()

    def _require_unchanged(self, job: Job, now: Hashes) -> None:
        if differing := describe_changed_hashes(self._hashes[job.setup_key], now):
            raise UsageError(f"the {differing} of {job.task} changed while the batch ran")

    def _run_in_thread(self, place: Path, setup: Setup) -> None:
        stops: list[Callable[[], None]] = []

        def attend(env: Environment) -> None:
            stops.append(env.stop_token.request)
            self._register_stop(env.stop_token.request)

        try:
            resume_run(place, None, _ignore_progress, attend, setup)
        except KeyboardInterrupt:  # it was asked to stop, and goes on another time
            pass
        finally:
            with self._lock:
                self._stops -= set(stops)

    def _run_in_subprocess(self, place: Path, gpu: str, setup: Setup) -> None:
        child = RunProcess(place, gpu, setup.task.folder)
        self._register_stop(child.stop)
        try:
            trouble = child.wait()
        finally:
            with self._lock:
                self._stops.discard(child.stop)
        if trouble:
            record_process_death(place, trouble)

    def _register_stop(self, stop: Callable[[], None]) -> None:
        with self._lock:
            self._stops.add(stop)
            if self._stopped:
                stop()


def record_process_death(place: Path, trouble: str) -> None:
    """Record a death as what it is: a fault of this try."""
    folder = RunFolder(place)
    with folder.lock():
        result = folder.result
        if result is None:
            found = build_result(folder, list(folder.steps()), "fault", Grade())
            folder.write_result(found.replace(note=trouble))


def _remove_partial_files(place: Path) -> None:
    """Remove what is left of a beginning that was cut off; anything else is not ours to remove."""
    for path in place.iterdir() if place.is_dir() else ():
        if path.name.startswith(PARTIAL_FILE_PREFIXES):
            path.unlink()


def _ignore_progress(line: str) -> None:
    pass


def describe_changed_hashes(before: Hashes, now: Hashes) -> str:
    """What is not as it was, in words."""
    known = before.model_dump()
    return " and ".join(name for name, value in now.model_dump().items() if known[name] != value)


def prepare_setups(jobs: Iterable[Job], progress: ProgressCallback) -> dict[str, Setup]:
    """Task, data and runtime of all the jobs, made once where they are missing."""
    found: dict[str, Setup] = {}
    for job in jobs:
        if job.setup_key not in found:
            found[job.setup_key] = prepare_setup(job.task, job.edition, job.sandbox, progress, job.instance)
    return found
