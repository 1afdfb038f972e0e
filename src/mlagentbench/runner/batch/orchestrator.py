"""Starts or resumes a batch: from a plan and a folder to results."""

import ctypes
import resource
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import Field

from mlagentbench.errors import UsageError
from mlagentbench.records import Hashes, Record, Result
from mlagentbench.runner.batch.batch_status import BatchFollower, BatchStatus
from mlagentbench.runner.batch.folder import BatchFolder, BatchRecord, hash_agent_files
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local_runner import (
    JobRunner,
    LocalRunner,
    describe_changed_hashes,
    prepare_setups,
)
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.runner.batch.scheduler import Scheduler, StatusCallback
from mlagentbench.runner.setup import Setup
from mlagentbench.sandbox.gpu import granted_devices
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task

# Creates a runner from the batch folder, the setups by their keys, and the names of the jobs that were in
# progress when the previous process of the batch died: one of them may have killed it.
RunnerFactory = Callable[[Path, dict[str, Setup], set[str]], JobRunner]
M_ARENA_MAX = -8  # from malloc.h
START_ORDER = ("stopped", "running", "queued", "fault")  # started runs first, failed runs last


class BatchOutcome(Record):
    """The state of a batch when `run_batch` returns.

    Attributes:
        status: The state of every run.
        results: The results of the plan's jobs, in the order of the plan.
        stop_reason: Why the batch stopped early, if it did.
        interrupted: Whether the user stopped it.
        has_unstopped_runs: Whether some runs did not stop in time.
        errors: By job name, why a job could not be started or recorded.
    """

    status: BatchStatus
    results: tuple[Result, ...]
    stop_reason: str = ""
    interrupted: bool = False
    has_unstopped_runs: bool = False
    errors: dict[str, str] = Field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every job has a result."""
        return self.status.totals.done == self.status.totals.runs


def run_batch(
    path: Path,
    plan: Plan | None,
    slots: Sequence[str],
    progress: ProgressCallback,
    on_status: StatusCallback,
    runner_factory: RunnerFactory = LocalRunner,
) -> BatchOutcome:
    """Run a batch, or resume it if the folder holds one.

    Args:
        path: The batch folder.
        plan: The plan; None for the one of an existing batch.
        slots: One entry for each run that may be in progress at a time: the GPU of that slot, or "".
        progress: Called with a line of text before each slow operation.
        on_status: Called about once a second with the state of all runs.
        runner_factory: Creates the runner: this machine by default, or a Ray cluster.

    Raises:
        UsageError: Something in the plan does not exist, or changed since the batch started. It is raised
            before the first run starts.
    """
    _use_one_malloc_arena()
    folder = BatchFolder(path)
    jobs = plan.expand_jobs() if plan else []
    with folder.lock() as was_killed:
        previous = folder.read_record() if folder.has_batch else None
        if plan is None:
            if previous is None:
                raise UsageError(f"{path} holds no batch to resume. Pass a plan, or --task and --agent.")
            plan, jobs = previous.plan, list(previous.jobs)
        record = BatchRecord(plan=plan, jobs=tuple(jobs))
        follower = BatchFollower(path)
        follower.follow_plan(record)
        unfinished = _select_unfinished(follower.refresh(), jobs, plan)
        setups = prepare_setups(unfinished, progress)
        hashes = {key: setup.hashes for key, setup in setups.items()}
        record = record.replace(hashes=hashes, agents=hash_agent_files(jobs, unfinished))
        record = _merge_pinned_hashes(path, record, previous)
        _require_unchanged_tasks(path, record, jobs)
        folder.write_record(record)
        follower.follow_plan(record)
        started = {job.name for job in unfinished if (path / job.name / "run.json").is_file()}
        runner = runner_factory(path, setups, started if was_killed else set())
        if runner_factory is LocalRunner:
            _warn_about_memory(unfinished, setups, len(slots), progress)
        scheduler = Scheduler(follower, plan, runner, slots, on_status, progress)
        for job in unfinished:
            scheduler.add(job)
        _raise_open_file_limit()
        with _signals_handled(scheduler):
            scheduler.run()
        return BatchOutcome(
            status=scheduler.status,
            results=tuple(follower.results()),
            stop_reason=scheduler.stop_reason,
            interrupted=scheduler.interrupted,
            has_unstopped_runs=scheduler.has_unstopped_runs,
            errors=scheduler.errors,
        )


def _select_unfinished(status: BatchStatus, jobs: list[Job], plan: Plan) -> list[Job]:
    """Select the jobs that have no result and did not use up their attempts, in the order to start them."""
    runs = {run.name: run for run in status.runs}
    unfinished = [
        job for job in jobs if runs[job.name].state != "finished" and runs[job.name].faults < plan.tries
    ]
    return sorted(unfinished, key=lambda job: START_ORDER.index(runs[job.name].state))


def _merge_pinned_hashes(path: Path, record: BatchRecord, previous: BatchRecord | None) -> BatchRecord:
    """Add the hashes that were recorded before; raise UsageError if an input of the batch changed."""
    if previous is None:
        return record
    for key, current in record.hashes.items():
        if key in previous.hashes and (changed := describe_changed_hashes(previous.hashes[key], current)):
            raise _changed_input_error(path, f"the {changed} of {key.partition(' ')[0]}")
    for agent, digest in record.agents.items():
        if previous.agents.get(agent, digest) != digest:
            raise _changed_input_error(path, f"the agent {agent}")
    hashes: dict[str, Hashes] = {**previous.hashes, **record.hashes}
    return record.replace(hashes=hashes, agents={**previous.agents, **record.agents})


def _require_unchanged_tasks(path: Path, record: BatchRecord, jobs: list[Job]) -> None:
    """Raise UsageError if a task changed whose jobs are finished: their results are not of the new one."""
    hashes = {job.task: record.hashes[job.setup_key].task for job in jobs if job.setup_key in record.hashes}
    for name, recorded in hashes.items():
        if _hash_task(name) not in ("", recorded):
            raise _changed_input_error(path, f"the task {name}")


def _hash_task(name: str) -> str:
    """The hash of a task; empty if it is gone, which does not affect results that are there."""
    try:
        return Task.load(name).hash
    except UsageError:
        return ""


def _warn_about_memory(
    jobs: list[Job], setups: dict[str, Setup], slots: int, progress: ProgressCallback
) -> None:
    """Warn if the memory limits of the scripts that may run at the same time exceed the machine's memory."""
    limits_gb = (
        job.limits.get("memory_gb", setups[job.setup_key].task.config.limits.memory_gb) for job in jobs
    )
    needed_gb, available_gb = sum(sorted(limits_gb)[-slots:]), detect_hardware().memory_gb
    if needed_gb > available_gb:
        progress(
            f"Note: the scripts of {slots} parallel runs may use {needed_gb:g} GB of memory;"
            f" this machine has {available_gb:g} GB."
        )


def _changed_input_error(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{path} cannot be resumed: {what} changed since it started. Choose another --out for a new batch."
    )


def _use_one_malloc_arena() -> None:
    """Make all threads share one malloc arena: glibc creates several, and each keeps its peak size."""
    with suppress(AttributeError):  # a C library without mallopt
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _raise_open_file_limit() -> None:
    """Raise the soft limit to the hard one: a run with a script has about ten files open."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


@contextmanager
def _signals_handled(scheduler: Scheduler) -> Iterator[None]:
    """Stop the batch on Ctrl-C and on SIGTERM, which clusters send. An ignored signal stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replaced = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}
    for number in replaced:
        signal.signal(number, scheduler.handle_signal)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def assign_gpus_to_slots(jobs: int | None, gpu: str) -> list[str]:
    """Assign a GPU number to each of `jobs` slots in turn; without GPUs, the slots are empty strings.

    By default there is one slot for each GPU.
    """
    names = [path.name.removeprefix("nvidia") for path in granted_devices(gpu)]
    numbers = [name for name in names if name.isdigit()] or [""]
    return [numbers[slot % len(numbers)] for slot in range(jobs or len(numbers))]
