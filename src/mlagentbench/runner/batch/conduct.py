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
from mlagentbench.hardware import hardware
from mlagentbench.preparation.download import Say
from mlagentbench.records import Hashes, Record, Result
from mlagentbench.runner.batch.batch import Batch, Show
from mlagentbench.runner.batch.folder import BatchFolder, BatchRecord, agent_hashes
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local import Local, Runner, different, ready
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.runner.batch.survey import Survey, View
from mlagentbench.runner.setup import Setup
from mlagentbench.sandbox.gpu import granted

# Whoever runs jobs is told the folder, what they need, and which of them may have ended the last process.
Machines = Callable[[Path, dict[str, Setup], set[str]], Runner]
ARENA_MAX = -8  # of mallopt
ORDER = ("stopped", "running", "queued", "fault")  # what was begun comes first, what failed last


class Ended(Record):
    """How far a batch came: why it stopped short if it did, and which jobs it could do nothing about."""

    view: View
    results: tuple[Result, ...]
    reason: str = ""
    interrupted: bool = False
    abandoned: bool = False  # some runs did not stop in time
    troubles: dict[str, str] = Field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether every job has its result."""
        return self.view.totals.done == self.view.totals.runs


def conduct(
    path: Path, plan: Plan | None, slots: Sequence[str], say: Say, show: Show, machines: Machines = Local
) -> Ended:
    """Run a batch, or go on with it; whatever a person must mend is said before anything begins."""
    _share_memory()
    folder = BatchFolder(path)
    jobs = plan.jobs() if plan else []
    with folder.lock() as died:
        old = folder.read() if folder.exists else None
        if plan is None:
            if old is None:
                raise UsageError(f"{path} holds no batch to go on with: name a plan, or tasks and agents")
            plan, jobs = old.plan, list(old.jobs)
        record = BatchRecord(plan=plan, jobs=tuple(jobs))
        survey = Survey(path)
        survey.adopt(record)
        todo = _todo(survey.look(), jobs, plan)
        setups = ready(todo, say)
        hashes = {name: setup.hashes for name, setup in setups.items()}
        record = _agreed(path, record.but(hashes=hashes, agents=agent_hashes(todo)), old)
        folder.write(record)
        survey.adopt(record)
        suspects = {job.name for job in todo if (path / job.name / "run.json").is_file()} if died else set[str]()
        if machines is Local:
            _warn(todo, setups, len(slots), say)
        batch = Batch(survey, plan, machines(path, setups, suspects), slots, show, say)
        for job in todo:
            batch.add(job)
        _open_many_files()
        with _interruptible(batch):
            batch.run()
        return Ended(
            view=batch.view,
            results=tuple(survey.results()),
            reason=batch.reason,
            interrupted=batch.interrupted,
            abandoned=batch.abandoned,
            troubles=batch.troubles,
        )


def _todo(view: View, jobs: list[Job], plan: Plan) -> list[Job]:
    """Jobs without a result, as far as they are not given up."""
    standings = {each.name: each for each in view.standings}
    open_ones = [(standings[job.name], job) for job in jobs]
    open_ones = [(each, job) for each, job in open_ones if each.state != "finished" and each.faults < plan.tries]
    return [job for each, job in sorted(open_ones, key=lambda pair: ORDER.index(pair[0].state))]


def _agreed(path: Path, record: BatchRecord, old: BatchRecord | None) -> BatchRecord:
    """The record with what was pinned before; results of one batch must not depend on different things."""
    if old is None:
        return record
    for name, now in record.hashes.items():
        if name in old.hashes and (differing := different(old.hashes[name], now)):
            raise _refusal(path, f"the {differing} of {name.partition(' ')[0]}")
    for agent, content in record.agents.items():
        if old.agents.get(agent, content) != content:
            raise _refusal(path, f"the agent {agent}")
    pinned: dict[str, Hashes] = {**old.hashes, **record.hashes}
    return record.but(hashes=pinned, agents={**old.agents, **record.agents})


def _warn(jobs: list[Job], setups: dict[str, Setup], slots: int, say: Say) -> None:
    """Scripts may use all the memory that they are allowed, and all at once."""
    allowed = (job.limits.get("memory_gb", setups[job.setting].task.config.limits.memory_gb) for job in jobs)
    asked, there = sum(sorted(allowed)[-slots:]), hardware().memory_gb
    if asked > there:
        say(f"note: the scripts of {slots} runs at a time may use {asked:g} GB of memory, and there are {there:g} GB")


def _refusal(path: Path, what: str) -> UsageError:
    return UsageError(f"{path} cannot go on: {what} changed since it began; choose another --out for a new batch")


def _share_memory() -> None:
    """Let all threads allocate from one place: glibc gives them many, each of which keeps what it once needed."""
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(ARENA_MAX, 1)


def _open_many_files() -> None:
    """A run with a script under way has about ten files open, and there may be hundreds of runs."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def _interruptible(batch: Batch) -> Iterator[None]:
    """Ctrl-C lets it stop, and so does SIGTERM, which clusters send; who ignores a signal goes on ignoring it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heard = {number: before for number, before in known.items() if before != signal.SIG_IGN}
    for number in heard:
        signal.signal(number, batch.interrupt)
    try:
        yield
    finally:
        for number, before in heard.items():
            signal.signal(number, before)


def slots_of(jobs: int | None, gpu: str) -> list[str]:
    """The GPU of each slot: so many jobs at a time, dealt out over the GPUs in turn; without GPUs they have none."""
    numbers = [path.name[6:] for path in granted(gpu) if path.name[6:].isdigit()]
    numbers = numbers or [""]
    return [numbers[slot % len(numbers)] for slot in range(jobs or len(numbers))]
