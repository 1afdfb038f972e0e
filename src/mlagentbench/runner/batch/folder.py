"""A batch on disk: batch.json says what is asked for, and one folder a run what came of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import Field, ValidationError

import mlagentbench
from mlagentbench.errors import Fault, UsageError
from mlagentbench.hashing import file_hash
from mlagentbench.locks import acquired, held
from mlagentbench.records import Hashes, Record
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.stopping import FILE as STOP
from mlagentbench.task import explain
from mlagentbench.versions import refuse_newer

FORMAT = 1
OURS = {"batch.json", "batch.json.part", "batch.lock", "index.sqlite", STOP}


class BatchRecord(Record):
    """batch.json: the plan, its jobs, and by hash all that results of one batch must have in common."""

    format: int = FORMAT
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
    def exists(self) -> bool:
        """Whether a batch was ever begun here."""
        return (self.path / "batch.json").is_file()

    @property
    def going(self) -> bool:
        """Whether a process is at work on it."""
        return held(self.path / "batch.lock")

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the folder alone; tells whether the last holder died over it."""
        self._require_place()
        with (self.path / "batch.lock").open("a+") as file:
            if not acquired(file):
                raise UsageError(f"a batch is going on in {self.path}; look at it with: mlagentbench watch {self.path}")
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

    def _require_place(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.exists and any(path.name not in OURS for path in self.path.iterdir()):
                raise UsageError(f"{self.path} is not empty, and no batch; choose another --out")
        except OSError as error:
            raise UsageError(f"cannot make a batch in {self.path}: {error.strerror}") from error

    def read(self) -> BatchRecord:
        """What is asked for."""
        path = self.path / "batch.json"
        try:
            data = path.read_bytes()
            refuse_newer(path, data, FORMAT)
            return BatchRecord.model_validate_json(data)
        except ValidationError as error:
            raise UsageError(f"{path} is damaged: {explain(error)}") from error
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error

    def write(self, record: BatchRecord) -> None:
        """Whole or not at all."""
        whole = self.path / "batch.json.part"
        try:
            whole.write_text(record.model_dump_json(indent=1), encoding="utf-8")
            whole.rename(self.path / "batch.json")
        except OSError as error:
            with suppress(OSError):
                whole.unlink()
            raise Fault(f"cannot write {self.path / 'batch.json'}: {error.strerror}") from error


def agent_hashes(jobs: list[Job]) -> dict[str, str]:
    """The content of agents that came from files."""
    files = {job.who.agent for job in jobs if job.who.agent.endswith(".py")}
    if missing := [path for path in files if not Path(path).is_file()]:
        raise UsageError(f"there is no file {missing[0]}")
    return {path: file_hash(Path(path)) for path in files}
