"""What is sent with a job to another machine: the agent's file, the task folder, and data drawn here."""

import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import mlagentbench
from mlagentbench.errors import UsageError
from mlagentbench.records import Hashes, Levels, Record
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local_runner import describe_changed_hashes
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.system.cache import build_once, cache_dir, temporary_dir
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task

READ_SIZE_BYTES = 8 << 20
ArchiveReader = Callable[[], Iterable[bytes]]  # reads a tar archive, block by block


class JobPayload(Record):
    """A job with what the other machine must match (version, hashes) and what it cannot have."""

    version: str = mlagentbench.__version__
    attempt_id: str
    job: Job
    hashes: Hashes
    levels: Levels
    agent_code: bytes = b""
    in_subprocess: bool = False  # the run was in progress when a process died
    shared_folder: str = ""  # the batch folder, if all machines see it


def read_agent_code(job: Job) -> bytes:
    """Read the agent's file, if it has one."""
    return Path(job.agent_spec.agent).read_bytes() if job.agent_spec.agent.endswith(".py") else b""


def find_folders_to_send(job: Job, setup: Setup) -> dict[str, Path]:
    """Find the folders that other machines cannot have: a task outside the suite, a data instance."""
    folders = {}
    if setup.task.load_name != setup.task.name:
        folders["task"] = setup.task.folder
    if job.instance:
        folders["data"] = setup.data.folder
    return folders


def install_payload(
    payload: JobPayload, archives: dict[str, ArchiveReader], progress: ProgressCallback
) -> Setup:
    """Unpack the archives into the cache and prepare the setup of the job on this machine.

    Raises:
        UsageError: The version, task, grader, data or runtime differs from the machine that sent the job.
    """
    if payload.version != mlagentbench.__version__:
        raise UsageError(
            f"This node has mlagentbench {mlagentbench.__version__}, but the batch runs {payload.version}"
        )
    job, task = payload.job, Path(payload.job.task)
    if "task" in archives:
        task = cache_dir() / "received_tasks" / payload.hashes.task[:32] / task.name
        _install_archive(task, archives["task"])
    if "data" in archives:
        is_name = job.instance.startswith(f"{job.edition}-")  # else it is a hash
        name = job.instance if is_name else f"{job.edition}-{job.instance[:16]}"
        _install_archive(cache_dir() / "data" / task.name / name, archives["data"])
    setup = _cached_prepare_setup(
        str(task), job.edition, job.sandbox, progress, job.instance, start=job.start
    )
    if "task" in archives:
        setup = replace(setup, task=Task(task, job.task))
    if changed := describe_changed_hashes(payload.hashes, setup.hashes):
        raise UsageError(
            f"The {changed} of {task.name} on this node differs from where the batch was started"
        )
    return replace(setup, levels=payload.levels)


_cached_prepare_setup = cache(prepare_setup)  # one worker process of Ray executes many jobs


def _install_archive(target: Path, read_archive: ArchiveReader) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    build_once(target, lambda folder: unpack_archive(read_archive(), folder))


def pack_folder(folder: Path) -> Iterator[bytes]:
    """Pack the content of a folder into a tar archive, and yield it block by block."""
    with temporary_dir() as scratch:
        archive = scratch / "archive.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(folder, ".", filter=_clear_owner)
        with archive.open("rb") as file:
            yield from iter(lambda: file.read(READ_SIZE_BYTES), b"")


def _clear_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack_archive(content: Iterable[bytes], folder: Path) -> None:
    """Unpack an archive of `pack_folder` into a folder."""
    with temporary_dir() as scratch:
        archive = scratch / "archive.tar"
        with archive.open("wb") as file:
            file.writelines(content)
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="tar")
