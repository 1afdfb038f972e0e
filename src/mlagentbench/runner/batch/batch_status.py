"""Reads the state of all runs of a folder from its files, for the progress display and `watch`."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from statistics import mean

from mlagentbench.errors import UsageError
from mlagentbench.records import Record, Result
from mlagentbench.runner.batch.folder import BatchFolder, BatchRecord
from mlagentbench.runner.batch.index import ResultIndex
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.plan import Budget
from mlagentbench.runner.batch.run_status import RunFollower, RunStatus

COUNTED_STATES = ("fault", "running", "stopped", "queued")


class BatchTotals(Record):
    """Sums over the planned runs; tokens, dollars and hours are sums over all runs of the folder."""

    runs: int
    done: int
    success: int
    invalid: int
    fault: int
    running: int
    stopped: int
    queued: int
    unplanned: int
    tokens: int
    dollars: float
    hours: float
    seconds_left: float | None  # an estimate from the finished runs


class BatchStatus(Record):
    """The state of a batch, a single run or a folder of runs."""

    running: bool
    budget: Budget
    runs: tuple[RunStatus, ...]

    @cached_property
    def totals(self) -> BatchTotals:
        """The sums over the runs."""
        planned = [run for run in self.runs if run.planned]
        counts = {state: sum(run.state == state for run in planned) for state in COUNTED_STATES}
        done = [run for run in planned if run.state == "finished"]
        return BatchTotals(
            runs=len(planned),
            done=len(done),
            success=sum(bool(run.success) for run in done),
            invalid=sum(not run.valid for run in done),
            unplanned=len(self.runs) - len(planned),
            tokens=sum(run.tokens for run in self.runs),
            dollars=sum(run.dollars for run in self.runs),
            hours=sum(run.seconds for run in self.runs) / 3600,
            seconds_left=_estimate_seconds_left(planned, done),
            **counts,
        )


def _estimate_seconds_left(planned: Sequence[RunStatus], done: Sequence[RunStatus]) -> float | None:
    """Estimate the time left from the mean duration of finished runs and the number of runs in progress."""
    if not done:
        return None
    seconds_by_task: dict[str, list[float]] = {}
    for run in done:
        seconds_by_task.setdefault(run.task, []).append(run.seconds)
    mean_by_task = {task: mean(seconds) for task, seconds in seconds_by_task.items()}
    overall_mean = mean(run.seconds for run in done)
    unfinished = [run for run in planned if run.state in ("queued", "running", "stopped")]
    work = sum(max(mean_by_task.get(run.task, overall_mean) - run.seconds, 0.0) for run in unfinished)
    return work / max(sum(run.state == "running" for run in unfinished), 1)


class BatchFollower:
    """Follows a batch, a single run or a folder of runs: each `refresh` reads only what is new."""

    def __init__(self, path: Path) -> None:
        """Follow the folder `path`; raise UsageError if there is none."""
        self.folder = BatchFolder(path)
        self.budget = Budget()
        self._followers: dict[str, RunFollower] = {}
        self._jobs: tuple[Job, ...] = ()
        self._followed_stamp: object = None  # of the batch.json that is followed
        self._index = ResultIndex(path / "index.sqlite")
        if not path.is_dir():
            raise UsageError(f"No such folder: {path}")

    def refresh(self) -> BatchStatus:
        """Read the current state of all runs."""
        if (self.folder.path / "run.json").is_file():
            return self._refresh_single_run()
        self._read_plan_if_changed()
        for path in self.folder.path.iterdir():
            if path.name not in self._followers and (path / "run.json").is_file():
                self._followers[path.name] = RunFollower(path)
        runs = tuple(follower.refresh(self._index) for follower in self._followers.values())
        if self._jobs:
            self._index.write()
            running = self.folder.is_running
        else:  # a folder of runs without a plan: all of them count
            runs = tuple(run.replace(planned=True) for run in runs)
            running = any(run.state == "running" for run in runs)
        return BatchStatus(running=running, budget=self.budget, runs=runs)

    def _refresh_single_run(self) -> BatchStatus:
        path = self.folder.path.resolve()
        follower = self._followers.setdefault(path.name, RunFollower(path))
        run = follower.refresh().replace(planned=True)
        return BatchStatus(running=run.state == "running", budget=self.budget, runs=(run,))

    def _read_plan_if_changed(self) -> None:
        """Read batch.json if it is new: a batch may be resumed with another plan."""
        if self.folder.has_batch and self._batch_stamp() != self._followed_stamp:
            self.follow_plan(self.folder.read_record())

    def follow_plan(self, record: BatchRecord) -> None:
        """Follow the runs of this plan. Runs of an earlier plan are followed as unplanned ones."""
        self._followed_stamp, self._jobs, self.budget = self._batch_stamp(), record.jobs, record.plan.budget
        previous, self._followers = self._followers, {}
        for job in record.jobs:
            name = job.name
            follower = previous.pop(name, None)
            if not follower or not follower.status.planned:
                follower = RunFollower(self.folder.path / name, job)
            self._followers[name] = follower
        self._followers |= {name: RunFollower(self.folder.path / name) for name in previous}

    def _batch_stamp(self) -> object:
        if not self.folder.has_batch:
            return None
        status = (self.folder.path / "batch.json").stat()
        return status.st_mtime_ns, status.st_ino

    def refresh_run(self, name: str) -> RunStatus:
        """Read the current state of one run."""
        return self._followers[name].refresh(self._index)

    def total_spend(self) -> tuple[float, float]:
        """Sum the dollars and the hours of all runs, as of the last refresh."""
        runs = [follower.status for follower in self._followers.values()]
        return sum(run.dollars for run in runs), sum(run.seconds for run in runs) / 3600

    def results(self) -> list[Result]:
        """List the results of the plan, in its order."""
        planned = [follower for follower in self._followers.values() if follower.status.planned]
        return [follower.result for follower in planned if follower.result]
