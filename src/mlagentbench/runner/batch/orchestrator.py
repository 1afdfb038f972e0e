"""From a plan and a folder to results: a new batch, or one that goes on where it stopped."""

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

# Whoever runs jobs is told the folder, what they need, and which of them may have ended the last process.
RunnerFactory = Callable[[Path, dict[str, Setup], set[str]], JobRunner]
M_ARENA_MAX = -8  # of mallopt
START_ORDER = ("stopped", "running", "queued", "fault")  # what was begun comes first, what failed last


class BatchOutcome(Record):
    """How far a batch came: why it stopped short if it did, and which jobs it could do nothing about."""

    status: BatchStatus
    results: tuple[Result, ...]
    stop_reason: str = ""
    interrupted: bool = False
    has_unstopped_runs: bool = False  # some runs did not stop in time
    errors: dict[str, str] = Field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every job has its result."""
        return self.status.totals.done == self.status.totals.runs


def run_batch(
    path: Path,
    plan: Plan | None,
    slots: Sequence[str],
    progress: ProgressCallback,
    on_status: StatusCallback,
    runner_factory: RunnerFactory = LocalRunner,
) -> BatchOutcome:
    """Run a batch, or go on with it; whatever a person must mend is said before anything begins."""
    _use_one_malloc_arena()
    folder = BatchFolder(path)
    jobs = plan.expand_jobs() if plan else []
    with folder.lock() as died:
        old = folder.read_record() if folder.has_batch else None
        if plan is None:
            if old is None:
                raise UsageError(f"{path} holds no batch to go on with: name a plan, or tasks and agents")
            plan, jobs = old.plan, list(old.jobs)
        record = BatchRecord(plan=plan, jobs=tuple(jobs))
        survey = BatchFollower(path)
        survey.follow_plan(record)
        todo = _select_unfinished(survey.refresh(), jobs, plan)
        setups = prepare_setups(todo, progress)
        hashes = {name: setup.hashes for name, setup in setups.items()}
        record = _merge_pinned_hashes(path, record.replace(hashes=hashes, agents=hash_agent_files(todo)), old)
        folder.write_record(record)
        survey.follow_plan(record)
        suspects = (
            {job.name for job in todo if (path / job.name / "run.json").is_file()} if died else set[str]()
        )
        if runner_factory is LocalRunner:
            _warn_about_memory(todo, setups, len(slots), progress)
        batch = Scheduler(survey, plan, runner_factory(path, setups, suspects), slots, on_status, progress)
        for job in todo:
            batch.add(job)
        _raise_open_file_limit()
        with _signals_handled(batch):
            batch.run()
        return BatchOutcome(
            status=batch.status,
            results=tuple(survey.results()),
            stop_reason=batch.stop_reason,
            interrupted=batch.interrupted,
            has_unstopped_runs=batch.has_unstopped_runs,
            errors=batch.errors,
        )


def _select_unfinished(view: BatchStatus, jobs: list[Job], plan: Plan) -> list[Job]:
    """Jobs without a result, as far as they are not given up."""
    standings = {each.name: each for each in view.runs}
    open_ones = [(standings[job.name], job) for job in jobs]
    open_ones = [
        (each, job) for each, job in open_ones if each.state != "finished" and each.faults < plan.tries
    ]
    return [job for each, job in sorted(open_ones, key=lambda pair: START_ORDER.index(pair[0].state))]


def _merge_pinned_hashes(path: Path, record: BatchRecord, old: BatchRecord | None) -> BatchRecord:
    """The record with what was pinned before; results of one batch must not depend on different things."""
    if old is None:
        return record
    for name, now in record.hashes.items():
        if name in old.hashes and (differing := describe_changed_hashes(old.hashes[name], now)):
            raise _changed_input_error(path, f"the {differing} of {name.partition(' ')[0]}")
    for agent, content in record.agents.items():
        if old.agents.get(agent, content) != content:
            raise _changed_input_error(path, f"the agent {agent}")
    pinned: dict[str, Hashes] = {**old.hashes, **record.hashes}
    return record.replace(hashes=pinned, agents={**old.agents, **record.agents})


def _warn_about_memory(jobs: list[Job], setups: dict[str, Setup], slots: int, say: ProgressCallback) -> None:
    """Scripts may use all the memory that they are allowed, and all at once."""
    allowed = (
        job.limits.get("memory_gb", setups[job.setup_key].task.config.limits.memory_gb) for job in jobs
    )
    asked, there = sum(sorted(allowed)[-slots:]), detect_hardware().memory_gb
    if asked > there:
        say(
            f"note: the scripts of {slots} runs at a time may use {asked:g} GB of memory, and there are {there:g} GB"
        )


def _changed_input_error(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{path} cannot go on: {what} changed since it began; choose another --out for a new batch"
    )


def _use_one_malloc_arena() -> None:
    """Let all threads allocate from one place: glibc gives them many, each of which keeps what it once needed."""
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _raise_open_file_limit() -> None:
    """A run with a script under way has about ten files open, and there may be hundreds of runs."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def _signals_handled(batch: Scheduler) -> Iterator[None]:
    """Ctrl-C lets it stop, and so does SIGTERM, which clusters send; who ignores a signal goes on ignoring it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heard = {number: before for number, before in known.items() if before != signal.SIG_IGN}
    for number in heard:
        signal.signal(number, batch.handle_signal)
    try:
        yield
    finally:
        for number, before in heard.items():
            signal.signal(number, before)


def assign_gpus_to_slots(jobs: int | None, gpu: str) -> list[str]:
    """The GPU of each slot: so many jobs at a time, dealt out over the GPUs in turn; without GPUs they have none."""
    numbers = [path.name[6:] for path in granted_devices(gpu) if path.name[6:].isdigit()]
    numbers = numbers or [""]
    return [numbers[slot % len(numbers)] for slot in range(jobs or len(numbers))]
