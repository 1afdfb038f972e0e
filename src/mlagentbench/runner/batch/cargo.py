"""What a job takes along to another machine: its agent's file, its task's folder, data that only we have."""

import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import mlagentbench
from mlagentbench.errors import UsageError
from mlagentbench.home import build, home, scratch
from mlagentbench.preparation.download import Say
from mlagentbench.records import Baseline, Hashes, Record
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local import different
from mlagentbench.runner.setup import Setup, set_up
from mlagentbench.task import Task

CHUNK = 8 << 20  # bytes
Chunks = Callable[[], Iterable[bytes]]


class Cargo(Record):
    """A job as it is sent: what must be the same over there, and what it cannot find there."""

    version: str = mlagentbench.__version__
    ticket: str  # tells this try from others
    job: Job
    hashes: Hashes
    baseline: Baseline | None
    agent: bytes = b""
    apart: bool = False  # it may have ended a process already
    shared: str = ""  # the folder of the batch, if all machines see it


def agent_of(job: Job) -> bytes:
    """The agent's code, if it came from a file."""
    return Path(job.who.agent).read_bytes() if job.who.agent.endswith(".py") else b""


def folders(job: Job, setup: Setup) -> dict[str, Path]:
    """The folders that other machines cannot have: tasks besides the suite, data that was drawn here."""
    found = {"task": setup.task.folder} if setup.task.origin != setup.task.name else {}
    return {**found, "data": setup.data.folder} if job.instance else found


def settle(cargo: Cargo, freight: dict[str, Chunks], say: Say) -> Setup:
    """Make everything ready on this machine, once; it must be what it is where the job comes from."""
    if cargo.version != mlagentbench.__version__:
        raise UsageError(f"here is mlagentbench {mlagentbench.__version__}, and not {cargo.version}")
    job, task = cargo.job, Path(cargo.job.task)
    if "task" in freight:
        task = home() / "freight" / cargo.hashes.task[:32] / task.name
        _bring(task, freight["task"])
    if "data" in freight:
        named = job.instance.startswith(f"{job.edition}-")  # it may be named by its hash as well
        name = job.instance if named else f"{job.edition}-{job.instance[:16]}"
        _bring(home() / "data" / task.name / name, freight["data"])
    setup = _ready(str(task), job.edition, job.sandbox, say, job.instance)
    if "task" in freight:
        setup = replace(setup, task=Task(task, job.task))
    if differing := different(cargo.hashes, setup.hashes):
        raise UsageError(f"here the {differing} of {task.name} is not what it is where the batch was started")
    return replace(setup, baseline=cargo.baseline)


_ready = cache(set_up)  # a process gets one job after another


def _bring(target: Path, content: Chunks) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    build(target, lambda folder: unpack(content(), folder))


def pack(folder: Path) -> Iterator[bytes]:
    """The content of a folder as an archive, chunk by chunk."""
    with scratch() as place:
        archive = place / "archive.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(folder, ".", filter=_anybody)
        with archive.open("rb") as file:
            yield from iter(lambda: file.read(CHUNK), b"")


def _anybody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(content: Iterable[bytes], folder: Path) -> None:
    """Put it into another folder."""
    with scratch() as place:
        archive = place / "archive.tar"
        with archive.open("wb") as file:
            file.writelines(content)
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="tar")
