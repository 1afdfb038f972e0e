"""Schedules the jobs of a batch: slots, retries, the budget and requests to stop."""

import gc
import heapq
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread
from types import FrameType

from mlagentbench.errors import ProgramFault, UsageError
from mlagentbench.runner.batch.batch_status import BatchFollower, BatchStatus
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local_runner import JobRunner
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.runner.batch.subprocess_runner import PROCESS_DEATH_PREFIX
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.system.stop_token import StopToken

STOP_POLL_INTERVAL_S = 0.2
REFRESH_INTERVAL_S = 1.0  # between two reads of the state of all runs
GC_INTERVAL_S = 5.0
STOP_GRACE_S = 20.0  # for runs to stop; a killed run loses only the step in progress
MAX_CONSECUTIVE_FAULTS = 10  # faults without a result in between: then something is wrong with the machine

StatusCallback = Callable[[BatchStatus], None]


class Scheduler:
    """Runs each job in a thread of its own. All decisions are made in the thread that calls `run`.

    Attributes:
        status: The state of all runs when it was last read.
        stop_reason: Why the batch stops early, or an empty string.
        interrupted: Whether the user asked to stop.
        errors: By job name, why a job could not be started or recorded.
    """

    def __init__(
        self,
        follower: BatchFollower,
        plan: Plan,
        runner: JobRunner,
        slots: Sequence[str],
        on_status: StatusCallback,
        progress: ProgressCallback,
    ) -> None:
        self.follower, self.plan, self.runner = follower, plan, runner
        self.on_status, self.progress = on_status, progress
        self.stop_reason, self.interrupted = "", False
        self.errors: dict[str, str] = {}
        self._free_slots = list(slots)[::-1]
        self._max_faults = max(MAX_CONSECUTIVE_FAULTS, 2 * len(slots))
        self._queue: list[tuple[float, int, Job]] = []  # a heap by start time and order of addition
        self._added_count = 0
        self._running_count = 0
        # Not a SimpleQueue: a signal at the end of its timeout makes it wait forever (CPython 3.11).
        self._finished: Queue[tuple[Job, str, str]] = Queue()
        self._consecutive_faults: set[str] = set()
        self._signal_count = 0
        self._stop_token = StopToken(follower.folder.path)
        self._stop_deadline = self._next_refresh = self._next_collection = 0.0

    def add(self, job: Job, delay_s: float = 0.0) -> None:
        """Add a job to the queue, to be started after a delay."""
        self._added_count += 1
        start_time = time.monotonic() + delay_s if delay_s else 0.0
        heapq.heappush(self._queue, (start_time, self._added_count, job))

    def run(self) -> None:
        """Run all jobs, until they are finished or the batch is stopped."""
        gc.freeze()  # what exists now stays: collecting what runs leave need not look at it
        try:
            self._run_jobs()
        finally:
            gc.unfreeze()

    def _run_jobs(self) -> None:
        self._refresh_status()
        while self._running_count or (self._queue and not self.stop_reason):
            self._start_jobs()
            with suppress(Empty):
                self._handle_finished_job(*self._finished.get(timeout=STOP_POLL_INTERVAL_S))
            if time.monotonic() >= self._next_refresh:
                with suppress(OSError):  # for example too many open files; the next refresh may succeed
                    self._refresh_status()
            self._collect_garbage()
            if self._should_exit():
                break
        self._refresh_status()

    def _collect_garbage(self) -> None:
        """Free what finished runs left in memory.

        The garbage collector counts objects, not bytes: a TLS context is few objects and takes megabytes.
        """
        if time.monotonic() >= self._next_collection:
            gc.collect()
            self._next_collection = time.monotonic() + GC_INTERVAL_S

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        """Count a signal; `run` acts on it. Nothing is raised, so no operation is left half done."""
        self._signal_count += 1

    def _should_exit(self) -> bool:
        """Stop the runs at the first Ctrl-C or stop request; exit at the second Ctrl-C or the deadline."""
        if self._signal_count and not self.interrupted:
            self.progress("Stopping; all progress is saved. Press Ctrl-C again to exit at once.")
            self.interrupted = True
            self.stop("Stopped")
        elif self._stop_token.requested and not self.stop_reason:
            self.interrupted = True
            self.stop("Stop requested")
        return self._signal_count > 1 or bool(self.stop_reason and time.monotonic() > self._stop_deadline)

    def stop(self, reason: str) -> None:
        """Start no more jobs, and ask the running ones to stop as soon as possible."""
        if not self.stop_reason:
            self.stop_reason, self._stop_deadline = reason, time.monotonic() + STOP_GRACE_S
            self.runner.stop()

    @property
    def has_unstopped_runs(self) -> bool:
        """Whether some runs are still in progress."""
        return bool(self._running_count)

    def _refresh_status(self) -> None:
        started = time.monotonic()
        self.status = self.follower.refresh()
        self.on_status(self.status)
        self._check_budget()
        seconds = time.monotonic() - started
        # A large batch is read less often, so that reading takes at most a twentieth of the time.
        self._next_refresh = time.monotonic() + max(REFRESH_INTERVAL_S, 20 * seconds)

    def _check_budget(self) -> None:
        budget, (dollars, hours) = self.plan.budget, self.follower.total_spend()
        if not self._running_count and not self._queue:
            return  # everything is done, so the budget was sufficient
        if budget.dollars is not None and dollars >= budget.dollars:
            self.stop(f"Budget of ${budget.dollars:g} used up (${dollars:.2f})")
        elif budget.hours is not None and hours >= budget.hours:
            self.stop(f"Budget of {budget.hours:g} hours of runs used up ({hours:.2f})")

    def _start_jobs(self) -> None:
        while self._free_slots and self._queue and not self.stop_reason:
            if self._queue[0][0] > time.monotonic():
                break
            job, gpu = heapq.heappop(self._queue)[2], self._free_slots.pop()
            self._running_count += 1
            try:
                Thread(target=self._run_job, args=(job, gpu), name=job.name, daemon=True).start()
            except RuntimeError as error:  # no thread can be started, for example for lack of memory
                self._finished.put((job, gpu, str(error)))

    def _run_job(self, job: Job, gpu: str) -> None:
        error_message = ""
        try:
            self.runner.run(job, gpu)
        except UsageError as error:
            error_message = str(error)
        except BaseException as error:  # noqa: BLE001 - an error of one run must not affect the others
            error_message = f"{type(error).__name__}: {error}"
        self._finished.put((job, gpu, error_message))

    def _handle_finished_job(self, job: Job, gpu: str, error_message: str) -> None:
        """Free the slot, and retry the job if it ended with a fault."""
        self._running_count -= 1
        self._free_slots.append(gpu)
        run = self.follower.refresh_run(job.name)
        if error_message:
            self.errors[job.name] = error_message
        if run.state == "finished":
            self._consecutive_faults.clear()
        # An agent can kill its own process, so that says nothing about the machine.
        elif error_message or (run.state == "fault" and not run.note.startswith(PROCESS_DEATH_PREFIX)):
            self._consecutive_faults.add(job.name)
        never_started = ProgramFault.is_cause_of(run.note)
        if run.state == "fault" and not (error_message or never_started) and run.faults < self.plan.tries:
            self.add(job, self.plan.pause * 2 ** (run.faults - 1))
        if len(self._consecutive_faults) >= self._max_faults:
            count, last = len(self._consecutive_faults), error_message or run.note
            self.stop(f"{count} consecutive runs failed with faults. The last one: {last}")
        self._check_budget()
