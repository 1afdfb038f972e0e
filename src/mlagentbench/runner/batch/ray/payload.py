"""What a job takes along to another machine: its agent's file, its task's folder, data that only we have."""

import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import mlagentbench
from mlagentbench.errors import UsageError
from mlagentbench.records import Baseline, Hashes, Record
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local_runner import describe_changed_hashes
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.system.cache import build_once, cache_dir, temporary_dir
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task

READ_SIZE_BYTES = 8 << 20  # bytes
ArchiveReader = Callable[[], Iterable[bytes]]


class JobPayload(Record):
    """A job as it is sent: what must be the same over there, and what it cannot find there."""

    version: str = mlagentbench.__version__
    attempt_id: str  # tells this try from others
    job: Job
    hashes: Hashes
    baseline: Baseline | None
    agent_code: bytes = b""
    in_subprocess: bool = False  # it may have ended a process already
    shared_folder: str = ""  # the folder of the batch, if all machines see it


def read_agent_code(job: Job) -> bytes:
    """The agent's code, if it came from a file."""
    return Path(job.agent_spec.agent).read_bytes() if job.agent_spec.agent.endswith(".py") else b""


def find_folders_to_send(job: Job, setup: Setup) -> dict[str, Path]:
    """The folders that other machines cannot have: tasks besides the suite, data that was drawn here."""
    found = {"task": setup.task.folder} if setup.task.load_name != setup.task.name else {}
    return {**found, "data": setup.data.folder} if job.instance else found


def install_payload(
    payload: JobPayload, archives: dict[str, ArchiveReader], progress: ProgressCallback
) -> Setup:
    """Make everything ready on this machine, once; it must be what it is where the job comes from."""
    if payload.version != mlagentbench.__version__:
        raise UsageError(f"here is mlagentbench {mlagentbench.__version__}, and not {payload.version}")
    job, task = payload.job, Path(payload.job.task)
    if "task" in archives:
        task = cache_dir() / "freight" / payload.hashes.task[:32] / task.name
        _install_archive(task, archives["task"])
    if "data" in archives:
        named = job.instance.startswith(f"{job.edition}-")  # it may be named by its hash as well
        name = job.instance if named else f"{job.edition}-{job.instance[:16]}"
        _install_archive(cache_dir() / "data" / task.name / name, archives["data"])
    setup = _cached_prepare_setup(str(task), job.edition, job.sandbox, progress, job.instance)
    if "task" in archives:
        setup = replace(setup, task=Task(task, job.task))
    if differing := describe_changed_hashes(payload.hashes, setup.hashes):
        raise UsageError(f"here the {differing} of {task.name} is not what it is where the batch was started")
    return replace(setup, baseline=payload.baseline)


_cached_prepare_setup = cache(prepare_setup)  # a process gets one job after another


def _install_archive(target: Path, content: ArchiveReader) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    build_once(target, lambda folder: unpack_archive(content(), folder))


def pack_folder(folder: Path) -> Iterator[bytes]:
    """The content of a folder as an archive, chunk by chunk."""
    with temporary_dir() as place:
        archive = place / "archive.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(folder, ".", filter=_clear_owner)
        with archive.open("rb") as file:
            yield from iter(lambda: file.read(READ_SIZE_BYTES), b"")


def _clear_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack_archive(content: Iterable[bytes], folder: Path) -> None:
    """Put it into another folder."""
    with temporary_dir() as place:
        archive = place / "archive.tar"
        with archive.open("wb") as file:
            file.writelines(content)
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="tar")
