"""All runs of a folder at a glance, from its files alone; what the progress of a batch and `watch` show."""

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


class BatchTotals(Record):
    """Sums over the runs of a plan; the spend is that of all runs of the folder."""

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
    seconds_left: float | None  # as far as can be guessed from the runs that are done


class BatchStatus(Record):
    """One look."""

    running: bool
    budget: Budget
    runs: tuple[RunStatus, ...]

    @cached_property
    def totals(self) -> BatchTotals:
        """The sums."""
        planned = [each for each in self.runs if each.planned]
        counts = {
            state: sum(each.state == state for each in planned) for state in ("fault", "running", "stopped")
        }
        done = [each for each in planned if each.state == "finished"]
        return BatchTotals(
            runs=len(planned),
            done=len(done),
            success=sum(each.success for each in done),
            invalid=sum(not each.valid for each in done),
            queued=sum(each.state == "queued" for each in planned),
            unplanned=len(self.runs) - len(planned),
            tokens=sum(each.tokens for each in self.runs),
            dollars=sum(each.dollars for each in self.runs),
            hours=sum(each.seconds for each in self.runs) / 3600,
            seconds_left=_estimate_seconds_left(planned, done),
            **counts,
        )


def _estimate_seconds_left(planned: Sequence[RunStatus], done: Sequence[RunStatus]) -> float | None:
    """What the others will take if they take as long as those of their task did, as many at a time as now."""
    if not done:
        return None
    took: dict[str, list[float]] = {}
    for each in done:
        took.setdefault(each.task, []).append(each.seconds)
    usual = {task: mean(times) for task, times in took.items()}
    common = mean(each.seconds for each in done)
    open_ones = [each for each in planned if each.state in ("queued", "running", "stopped")]
    work = sum(max(usual.get(each.task, common) - each.seconds, 0.0) for each in open_ones)
    return work / max(sum(each.state == "running" for each in open_ones), 1)


class BatchFollower:
    """Looks at a batch, a run, or any folder of runs, again and again."""

    def __init__(self, path: Path) -> None:
        self.folder = BatchFolder(path)
        self.budget = Budget()
        self._followers: dict[str, RunFollower] = {}
        self._jobs: tuple[Job, ...] = ()
        self._written: object = None
        self._index = ResultIndex(path / "index.sqlite")
        if not path.is_dir():
            raise UsageError(f"there is no folder {path}")

    def refresh(self) -> BatchStatus:
        """Everything as it is now."""
        if (self.folder.path / "run.json").is_file():
            return self._refresh_single_run()
        self._read_plan_if_changed()
        for path in self.folder.path.iterdir():
            if path.name not in self._followers and (path / "run.json").is_file():
                self._followers[path.name] = RunFollower(path)
        standings = tuple(follower.refresh(self._index) for follower in self._followers.values())
        if self._jobs:
            self._index.write()
        else:  # whoever planned them, they are all there is
            standings = tuple(each.replace(planned=True) for each in standings)
        going = self.folder.is_running if self._jobs else any(each.state == "running" for each in standings)
        return BatchStatus(running=going, budget=self.budget, runs=standings)

    def _refresh_single_run(self) -> BatchStatus:
        place = self.folder.path.resolve()
        follower = self._followers.setdefault(place.name, RunFollower(place))
        standing = follower.refresh().replace(planned=True)
        return BatchStatus(running=standing.state == "running", budget=self.budget, runs=(standing,))

    def _read_plan_if_changed(self) -> None:
        """The plan, if it is new: a batch that was begun again may have another."""
        if self.folder.has_batch and self._batch_stamp() != self._written:
            self.follow_plan(self.folder.read_record())

    def follow_plan(self, record: BatchRecord) -> None:
        """Look at the runs of this plan; those of an earlier one are still told."""
        self._written, self._jobs, self.budget = self._batch_stamp(), record.jobs, record.plan.budget
        known, self._followers = self._followers, {}
        for job in record.jobs:
            name = job.name
            follower = known.pop(name, None)
            if not follower or not follower.status.planned:
                follower = RunFollower(self.folder.path / name, job)
            self._followers[name] = follower
        self._followers |= {name: RunFollower(self.folder.path / name) for name in known}

    def _batch_stamp(self) -> object:
        if not self.folder.has_batch:
            return None
        status = (self.folder.path / "batch.json").stat()
        return status.st_mtime_ns, status.st_ino

    def refresh_run(self, name: str) -> RunStatus:
        """One run as it is now."""
        return self._followers[name].refresh(self._index)

    def total_spend(self) -> tuple[float, float]:
        """Dollars and hours of all runs, as they were when they were last looked at."""
        standings = [follower.status for follower in self._followers.values()]
        return sum(each.dollars for each in standings), sum(each.seconds for each in standings) / 3600

    def results(self) -> list[Result]:
        """What there is of the plan, in its order."""
        planned = [follower for follower in self._followers.values() if follower.status.planned]
        return [follower.result for follower in planned if follower.result]
