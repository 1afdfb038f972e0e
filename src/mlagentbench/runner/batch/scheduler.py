"""Brings the jobs of a plan to their results: at most so many at a time, within a budget, through faults and stops."""

import gc
import heapq
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from types import FrameType

from mlagentbench.errors import UsageError
from mlagentbench.runner.batch.batch_status import BatchFollower, BatchStatus
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local_runner import JobRunner
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.runner.batch.subprocess_runner import PROCESS_DEATH_PREFIX
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.system.stop_token import StopToken

STOP_POLL_INTERVAL_S = 0.2  # seconds between two looks for somebody who wants it to stop
REFRESH_INTERVAL_S = 1.0  # seconds between two looks at all runs
GC_INTERVAL_S = 5.0  # seconds between two looks for what ended runs have left in memory
STOP_GRACE_S = 20.0  # seconds for runs to stop; what a killed run loses is only the step that was under way
MAX_CONSECUTIVE_FAULTS = 10  # runs that end as faults, with no result among them, are no accident any more

StatusCallback = Callable[[BatchStatus], None]


class Scheduler:
    """All decisions are made in one thread; each run has a thread of its own while it lasts."""

    def __init__(
        self,
        survey: BatchFollower,
        plan: Plan,
        runner: JobRunner,
        slots: Sequence[str],
        show: StatusCallback,
        say: ProgressCallback,
    ) -> None:
        self.follower, self.plan, self.runner, self.on_status, self.progress = survey, plan, runner, show, say
        self.stop_reason, self.interrupted = "", False
        self.errors: dict[str, str] = {}
        self._free = list(slots)[::-1]
        self._most_faults = max(MAX_CONSECUTIVE_FAULTS, 2 * len(slots))
        self._waiting: list[tuple[float, int, Job]] = []
        self._count = 0
        self._running = 0
        self._ended: SimpleQueue[tuple[Job, str, str]] = SimpleQueue()
        self._faulty: set[str] = set()
        self._signals = 0
        self._stopping = StopToken(survey.folder.path)
        self._deadline = self._next_look = self._next_sweep = 0.0

    def add(self, job: Job, delay_s: float = 0.0) -> None:
        """Queue a job, to begin after a pause."""
        self._count += 1
        heapq.heappush(self._waiting, (time.monotonic() + delay_s if delay_s else 0.0, self._count, job))

    def run(self) -> None:
        """Until all is done, or it is time to stop."""
        self._refresh_status()
        while self._running or (self._waiting and not self.stop_reason):
            self._start_jobs()
            with suppress(Empty):
                self._handle_finished_job(*self._ended.get(timeout=STOP_POLL_INTERVAL_S))
            if time.monotonic() >= self._next_look:
                with suppress(OSError):  # a machine that is out of files may have some at the next look
                    self._refresh_status()
            self._collect_garbage()
            if self._should_exit():
                break
        self._refresh_status()

    def _collect_garbage(self) -> None:
        """Free what ended runs left: connections of models take megabytes, of which the collector knows nothing."""
        if time.monotonic() >= self._next_sweep:
            gc.collect()
            self._next_sweep = time.monotonic() + GC_INTERVAL_S

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        """What a signal does; nothing is raised, so that nothing is left half done."""
        self._signals += 1

    def _should_exit(self) -> bool:
        """A first Ctrl-C, or a file that asks for it, lets the runs stop; a second leaves them, and so does time."""
        if self._signals and not self.interrupted:
            self.progress("stopping; what was done is kept (Ctrl-C again: at once)")
            self.interrupted = True
            self.stop("stopped")
        elif self._stopping.requested and not self.stop_reason:
            self.interrupted = True
            self.stop("somebody asked it to stop")
        return self._signals > 1 or bool(self.stop_reason and time.monotonic() > self._deadline)

    def stop(self, reason: str) -> None:
        """Begin nothing more, and let what runs stop at its next moment."""
        if not self.stop_reason:
            self.stop_reason, self._deadline = reason, time.monotonic() + STOP_GRACE_S
            self.runner.stop()

    @property
    def has_unstopped_runs(self) -> bool:
        """Whether runs are left that did not stop."""
        return bool(self._running)

    def _refresh_status(self) -> None:
        started = time.monotonic()
        self.status = self.follower.refresh()
        self.on_status(self.status)
        self._check_budget()
        took = time.monotonic() - started
        self._next_look = time.monotonic() + max(REFRESH_INTERVAL_S, 20 * took)

    def _check_budget(self) -> None:
        budget, (dollars, hours) = self.plan.budget, self.follower.total_spend()
        if not self._running and not self._waiting:
            return  # it was just enough
        if budget.dollars is not None and dollars >= budget.dollars:
            self.stop(f"the budget of ${budget.dollars:g} is used up (${dollars:.2f})")
        elif budget.hours is not None and hours >= budget.hours:
            self.stop(f"the budget of {budget.hours:g} hours of runs is used up ({hours:.2f})")

    def _start_jobs(self) -> None:
        while (
            self._free and self._waiting and self._waiting[0][0] <= time.monotonic() and not self.stop_reason
        ):
            job, gpu = heapq.heappop(self._waiting)[2], self._free.pop()
            self._running += 1
            try:
                Thread(target=self._run_job, args=(job, gpu), name=job.name, daemon=True).start()
            except RuntimeError as error:  # the machine has no room for another one just now
                self._ended.put((job, gpu, str(error)))

    def _run_job(self, job: Job, gpu: str) -> None:
        trouble = ""
        try:
            self.runner.run(job, gpu)
        except UsageError as error:
            trouble = str(error)
        except BaseException as error:  # noqa: BLE001 - the other runs are not to suffer for it
            trouble = f"{type(error).__name__}: {error}"
        self._ended.put((job, gpu, trouble))

    def _handle_finished_job(self, job: Job, gpu: str, trouble: str) -> None:
        """A result is kept, a fault is tried again; what has neither was stopped, and goes on another time."""
        self._running -= 1
        self._free.append(gpu)
        standing = self.follower.refresh_run(job.name)
        if trouble:
            self.errors[job.name] = trouble
        if standing.state == "finished":
            self._faulty.clear()
        elif trouble or (standing.state == "fault" and not standing.note.startswith(PROCESS_DEATH_PREFIX)):
            self._faulty.add(job.name)
        if standing.state == "fault" and not trouble and standing.faults < self.plan.tries:
            self.add(job, self.plan.pause * 2 ** (standing.faults - 1))
        if len(self._faulty) >= self._most_faults:
            said = trouble or standing.note
            self.stop(
                f"{len(self._faulty)} runs in a row failed through no fault of their agents, the last one: {said}"
            )
        self._check_budget()
