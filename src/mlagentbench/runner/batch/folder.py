"""A batch on disk: batch.json says what is asked for, and one folder a run what came of it."""

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
from mlagentbench.system.format_version import reject_newer_format
from mlagentbench.system.hashing import hash_file
from mlagentbench.system.lock import is_locked, try_lock
from mlagentbench.system.stop_token import STOP_FILE as STOP
from mlagentbench.task import describe_validation_error

BATCH_FORMAT = 1
BATCH_FILES = {"batch.json", "batch.json.part", "batch.lock", "index.sqlite", STOP}


class BatchRecord(Record):
    """batch.json: the plan, its jobs, and by hash all that results of one batch must have in common."""

    format: int = BATCH_FORMAT
    version: str = mlagentbench.__version__
    plan: Plan
    jobs: tuple[Job, ...]
    hashes: dict[str, Hashes] = Field(default_factory=dict)
    agents: dict[str, str] = Field(default_factory=dict)


class BatchFolder:
    """One batch's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def has_batch(self) -> bool:
        """Whether a batch was ever begun here."""
        return (self.path / "batch.json").is_file()

    @property
    def is_running(self) -> bool:
        """Whether a process is at work on it."""
        return is_locked(self.path / "batch.lock")

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the folder alone; tells whether the last holder died over it."""
        self._create_folder()
        with (self.path / "batch.lock").open("a+") as file:
            if not try_lock(file):
                raise UsageError(
                    f"a batch is going on in {self.path}; look at it with: mlagentbench watch {self.path}"
                )
            file.seek(0)
            died = bool(file.read())
            (self.path / STOP).unlink(missing_ok=True)  # it was meant for an earlier holder
            with suppress(OSError):  # on a full disk nobody will know that we died
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
            try:
                yield died
            finally:
                file.truncate(0)  # whoever is killed does not come here

    def _create_folder(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.has_batch and any(path.name not in BATCH_FILES for path in self.path.iterdir()):
                raise UsageError(f"{self.path} is not empty, and no batch; choose another --out")
        except OSError as error:
            raise UsageError(f"cannot make a batch in {self.path}: {error.strerror}") from error

    def read_record(self) -> BatchRecord:
        """What is asked for."""
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
        """Whole or not at all."""
        whole = self.path / "batch.json.part"
        try:
            whole.write_text(record.model_dump_json(indent=1), encoding="utf-8")
            whole.rename(self.path / "batch.json")
        except OSError as error:
            with suppress(OSError):
                whole.unlink()
            raise Fault(f"cannot write {self.path / 'batch.json'}: {error.strerror}") from error


def hash_agent_files(jobs: list[Job]) -> dict[str, str]:
    """The content of agents that came from files."""
    files = {job.agent_spec.agent for job in jobs if job.agent_spec.agent.endswith(".py")}
    if missing := [path for path in files if not Path(path).is_file()]:
        raise UsageError(f"there is no file {missing[0]}")
    return {path: hash_file(Path(path)) for path in files}
