"""Runs jobs on this machine."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Protocol

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import UsageError
from mlagentbench.grading.run_grader import Grade
from mlagentbench.records import Hashes
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.subprocess_runner import RunProcess
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import build_result
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.start import create_run, resume_run
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.system.progress import ProgressCallback, ignore_progress

PARTIAL_FILE_PREFIXES = (".run-", "agent.py")  # left if the process was killed while it created a run folder


class JobRunner(Protocol):
    """Executes jobs: on this machine (`LocalRunner`) or on a cluster (`RayRunner`)."""

    def run(self, job: Job, gpu: str) -> Path:
        """Start or resume a job, and return its run folder once it has ended or was stopped.

        Raises:
            UsageError: The job cannot be started.
            Fault: The job cannot be recorded.
        """

    def stop(self) -> None:
        """Ask all jobs to stop as soon as possible; their `run` calls then return."""


class LocalRunner:
    """Runs agents of the package as threads of this process.

    Agents from files get a process of their own, because their code may crash the interpreter. So do
    `crash_suspects`, the jobs that were in progress when the previous process of the batch died.
    """

    def __init__(self, out: Path, setups: dict[str, Setup], crash_suspects: Iterable[str] = ()) -> None:
        self.out, self.setups, self.crash_suspects = out, setups, set(crash_suspects)
        self._hashes = {key: setup.hashes for key, setup in setups.items()}
        self._lock = Lock()
        self._stop_functions: set[Callable[[], None]] = set()
        self._stopped = False

    def run(self, job: Job, gpu: str) -> Path:
        """Start or resume a job in the batch folder."""
        path = self.out / job.name
        self.run_in_folder(job, path, gpu, in_subprocess=job.name in self.crash_suspects)
        return path

    def run_in_folder(self, job: Job, path: Path, gpu: str, in_subprocess: bool) -> None:
        """Start or resume a job in the run folder `path`."""
        setup = self.setups[job.setup_key]
        setup = replace(setup, sandbox=create_sandbox(job.sandbox, gpu), record_access=job.record_access)
        if not (path / "run.json").is_file():
            self._require_unchanged(job, setup.hashes)
            _remove_partial_files(path)
            create_run(setup, job.agent_spec, path, job.seed, job.limits)
        if job.agent_spec.agent.endswith(".py") or in_subprocess:
            self._run_in_subprocess(path, gpu, setup)
        else:
            self._run_in_thread(path, setup)

    def stop(self) -> None:
        """Ask all jobs to stop, including those that start later."""
        with self._lock:
            self._stopped = True
            for stop in self._stop_functions:
                stop()

    def _require_unchanged(self, job: Job, current: Hashes) -> None:
        if changed := describe_changed_hashes(self._hashes[job.setup_key], current):
            raise UsageError(f"The {changed} of {job.task} changed while the batch was running")

    def _run_in_thread(self, path: Path, setup: Setup) -> None:
        stop_functions: list[Callable[[], None]] = []

        def register(env: Environment) -> None:
            stop_functions.append(env.stop_token.request)
            self._register_stop(env.stop_token.request)

        try:
            resume_run(path, None, ignore_progress, register, setup)
        except KeyboardInterrupt:  # stopped; it can be resumed
            pass
        finally:
            with self._lock:
                self._stop_functions -= set(stop_functions)

    def _run_in_subprocess(self, path: Path, gpu: str, setup: Setup) -> None:
        process = RunProcess(path, gpu, setup.task.folder)
        self._register_stop(process.stop)
        try:
            failure = process.wait()
        finally:
            with self._lock:
                self._stop_functions.discard(process.stop)
        if failure:
            record_process_death(path, failure)

    def _register_stop(self, stop: Callable[[], None]) -> None:
        with self._lock:
            self._stop_functions.add(stop)
            if self._stopped:
                stop()


def record_process_death(path: Path, note: str) -> None:
    """Write a result with the ending "fault" for a run whose process died."""
    folder = RunFolder(path)
    with folder.lock():
        if folder.result is None:
            result = build_result(folder, list(folder.steps()), "fault", Grade())
            folder.write_result(result.replace(note=note))


def _remove_partial_files(path: Path) -> None:
    """Remove what a killed process left while it created the folder, and nothing else."""
    for file in path.iterdir() if path.is_dir() else ():
        if file.name.startswith(PARTIAL_FILE_PREFIXES):
            file.unlink()


def describe_changed_hashes(recorded: Hashes, current: Hashes) -> str:
    """Name the hashes that differ, as in "task and grader"."""
    before = recorded.model_dump()
    return " and ".join(name for name, value in current.model_dump().items() if before[name] != value)


def prepare_setups(jobs: Iterable[Job], progress: ProgressCallback) -> dict[str, Setup]:
    """Prepare the task, data and runtime of all jobs, once for each setup key."""
    setups: dict[str, Setup] = {}
    for job in jobs:
        if job.setup_key not in setups:
            setups[job.setup_key] = prepare_setup(
                job.task, job.edition, job.sandbox, progress, job.instance, start=job.start
            )
    return setups
