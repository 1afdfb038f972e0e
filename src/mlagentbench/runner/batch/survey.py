"""All runs of a folder at a glance, from its files alone; what the progress of a batch and `watch` show."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from statistics import mean

from mlagentbench.errors import UsageError
from mlagentbench.records import Record, Result
from mlagentbench.runner.batch.folder import BatchFolder, BatchRecord
from mlagentbench.runner.batch.index import Index
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.plan import Budget
from mlagentbench.runner.batch.standing import Follower, Standing


class Totals(Record):
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


class View(Record):
    """One look."""

    going: bool
    budget: Budget
    standings: tuple[Standing, ...]

    @cached_property
    def totals(self) -> Totals:
        """The sums."""
        planned = [each for each in self.standings if each.planned]
        counts = {state: sum(each.state == state for each in planned) for state in ("fault", "running", "stopped")}
        done = [each for each in planned if each.state == "finished"]
        return Totals(
            runs=len(planned),
            done=len(done),
            success=sum(each.success for each in done),
            invalid=sum(not each.valid for each in done),
            queued=sum(each.state == "queued" for each in planned),
            unplanned=len(self.standings) - len(planned),
            tokens=sum(each.tokens for each in self.standings),
            dollars=sum(each.dollars for each in self.standings),
            hours=sum(each.seconds for each in self.standings) / 3600,
            seconds_left=_left(planned, done),
            **counts,
        )


def _left(planned: Sequence[Standing], done: Sequence[Standing]) -> float | None:
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


class Survey:
    """Looks at a batch, a run, or any folder of runs, again and again."""

    def __init__(self, path: Path) -> None:
        self.folder = BatchFolder(path)
        self.budget = Budget()
        self._followers: dict[str, Follower] = {}
        self._jobs: tuple[Job, ...] = ()
        self._written: object = None
        self._index = Index(path / "index.sqlite")
        if not path.is_dir():
            raise UsageError(f"there is no folder {path}")

    def look(self) -> View:
        """Everything as it is now."""
        if (self.folder.path / "run.json").is_file():
            return self._look_at_one()
        self._read_batch()
        for path in self.folder.path.iterdir():
            if path.name not in self._followers and (path / "run.json").is_file():
                self._followers[path.name] = Follower(path)
        standings = tuple(follower.look(self._index) for follower in self._followers.values())
        if self._jobs:
            self._index.write()
        else:  # whoever planned them, they are all there is
            standings = tuple(each.but(planned=True) for each in standings)
        going = self.folder.going if self._jobs else any(each.state == "running" for each in standings)
        return View(going=going, budget=self.budget, standings=standings)

    def _look_at_one(self) -> View:
        place = self.folder.path.resolve()
        follower = self._followers.setdefault(place.name, Follower(place))
        standing = follower.look().but(planned=True)
        return View(going=standing.state == "running", budget=self.budget, standings=(standing,))

    def _read_batch(self) -> None:
        """The plan, if it is new: a batch that was begun again may have another."""
        if self.folder.exists and self._stamp() != self._written:
            self.adopt(self.folder.read())

    def adopt(self, record: BatchRecord) -> None:
        """Look at the runs of this plan; those of an earlier one are still told."""
        self._written, self._jobs, self.budget = self._stamp(), record.jobs, record.plan.budget
        known, self._followers = self._followers, {}
        for job in record.jobs:
            name = job.name
            follower = known.pop(name, None)
            if not follower or not follower.standing.planned:
                follower = Follower(self.folder.path / name, job)
            self._followers[name] = follower
        self._followers |= {name: Follower(self.folder.path / name) for name in known}

    def _stamp(self) -> object:
        if not self.folder.exists:
            return None
        status = (self.folder.path / "batch.json").stat()
        return status.st_mtime_ns, status.st_ino

    def look_at(self, name: str) -> Standing:
        """One run as it is now."""
        return self._followers[name].look(self._index)

    def spent(self) -> tuple[float, float]:
        """Dollars and hours of all runs, as they were when they were last looked at."""
        standings = [follower.standing for follower in self._followers.values()]
        return sum(each.dollars for each in standings), sum(each.seconds for each in standings) / 3600

    def results(self) -> list[Result]:
        """What there is of the plan, in its order."""
        planned = [follower for follower in self._followers.values() if follower.standing.planned]
        return [follower.result for follower in planned if follower.result]
