"""Reads and writes batch folders: batch.json, and one run folder for each job.

docs/reference/run-folder.md lists every file with its fields.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import Field, ValidationError

import mlagentbench
from mlagentbench.errors import Fault, UsageError
from mlagentbench.records import Hashes, Record
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.system.atomic_write import PARTIAL_SUFFIX, write_atomic
from mlagentbench.system.format_version import reject_newer_format
from mlagentbench.system.hashing import hash_file
from mlagentbench.system.lock import is_locked, try_lock
from mlagentbench.system.stop_token import STOP_FILE
from mlagentbench.task import describe_validation_error

BATCH_FORMAT = 1
BATCH_FILES = {"batch.json", "batch.lock", "index.sqlite", STOP_FILE}


class BatchRecord(Record):
    """batch.json: the plan, its jobs, and the hashes of the inputs that all results of the batch share."""

    format: int = BATCH_FORMAT
    version: str = mlagentbench.__version__
    plan: Plan
    jobs: tuple[Job, ...]
    hashes: dict[str, Hashes] = Field(default_factory=dict)
    agents: dict[str, str] = Field(default_factory=dict)


class BatchFolder:
    """The folder of one batch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def has_batch(self) -> bool:
        """Whether a batch was ever started here."""
        return (self.path / "batch.json").is_file()

    @property
    def is_running(self) -> bool:
        """Whether a process is running the batch."""
        return is_locked(self.path / "batch.lock")

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the exclusive lock of the batch, and yield whether the previous holder was killed."""
        self._create_folder()
        with (self.path / "batch.lock").open("a+") as file:
            if not try_lock(file):
                raise UsageError(
                    f"Another process is running the batch in {self.path}."
                    f" To watch it: mlagentbench watch {self.path}"
                )
            file.seek(0)
            was_killed = bool(file.read())  # a holder that ends normally empties the file
            (self.path / STOP_FILE).unlink(missing_ok=True)  # an old request, for an earlier process
            with suppress(OSError):  # on a full disk the next holder cannot tell whether we were killed
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
            try:
                yield was_killed
            finally:
                file.truncate(0)

    def _create_folder(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.has_batch and not all(map(_is_batch_file, self.path.iterdir())):
                raise UsageError(f"{self.path} is not empty and holds no batch. Choose another --out.")
        except OSError as error:
            raise UsageError(f"Cannot create a batch in {self.path}: {error.strerror}") from error

    def read_record(self) -> BatchRecord:
        """Read batch.json."""
        path = self.path / "batch.json"
        try:
            data = path.read_bytes()
            reject_newer_format(path, data, BATCH_FORMAT)
            return BatchRecord.model_validate_json(data)
        except ValidationError as error:
            raise UsageError(f"{path} is damaged: {describe_validation_error(error)}") from error
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error

    def write_record(self, record: BatchRecord) -> None:
        """Write batch.json atomically."""
        path = self.path / "batch.json"
        try:
            write_atomic(path, record.model_dump_json(indent=1))
        except OSError as error:
            raise Fault(f"Cannot write {path}: {error.strerror}") from error


def _is_batch_file(path: Path) -> bool:
    return path.name in BATCH_FILES or path.name.endswith(PARTIAL_SUFFIX)


def hash_agent_files(jobs: list[Job], unfinished: list[Job]) -> dict[str, str]:
    """Hash the files of agents that are not part of the package; those of unfinished jobs must exist."""
    needed, known = (
        {job.agent_spec.agent for job in some if job.agent_spec.agent.endswith(".py")}
        for some in (unfinished, jobs)
    )
    if missing := [path for path in needed if not Path(path).is_file()]:
        raise UsageError(f"No such file: {missing[0]}")
    return {path: hash_file(Path(path)) for path in known if Path(path).is_file()}
