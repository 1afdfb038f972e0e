"""A run on disk: run.json, trace.jsonl, snapshots/, outputs/, result.json. All else can be made again from it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from mlagentbench.errors import Fault, UsageError
from mlagentbench.preparation.prepare import PreparedData
from mlagentbench.records import RUN_FORMAT, ModelCall, Record, Result, RunSpec, Step
from mlagentbench.sandbox.access_log.records import remove_accesses_after
from mlagentbench.system.format_version import reject_newer_format
from mlagentbench.system.hashing import hash_file
from mlagentbench.system.journal import Journal
from mlagentbench.system.lock import try_lock
from mlagentbench.system.stop_token import STOP_FILE as STOP
from mlagentbench.task import describe_validation_error
from mlagentbench.workspace.store import Store

RecordT = TypeVar("RecordT", bound=Record)
GRADES_FILE = "grades.jsonl"  # what the grader says of each step, if it was asked


class RunFolder:
    """One run's folder, opened."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        if not (self.path / "run.json").is_file():
            raise UsageError(f"{path} is not a run: it has no run.json")
        self.spec = _read_record(self.path / "run.json", RunSpec, RUN_FORMAT)

    @classmethod
    def create(cls, path: Path, spec: RunSpec, agent_file: Path | None = None) -> "RunFolder":
        """A new run; a folder that holds anything is refused."""
        try:
            str(path.absolute()).encode()
            text = spec.model_dump_json(indent=2).encode()
        except ValueError as error:
            raise UsageError(f"no record can be kept of a name that is not UTF-8: {error}") from error
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                begun = f", or continue with: resume {path}" if (path / "run.json").is_file() else ""
                raise UsageError(f"{path} is not empty; choose another --out{begun}")
            agent = {"agent.py": agent_file.read_bytes()} if agent_file else {}
            _create_files(path, {**agent, "run.json": text})  # last, since with it the folder is a run
        except OSError as error:
            raise UsageError(f"cannot make a run in {path}: {error.strerror}") from error
        return cls(path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder alone; the kernel lets go when the holder dies."""
        with (self.path / "run.lock").open("w") as file:
            if not try_lock(file):
                raise UsageError(f"a run is going on in {self.path}")
            (self.path / STOP).unlink(missing_ok=True)  # it was meant for an earlier holder
            yield

    @contextmanager
    def lock_shared(self) -> Iterator[None]:
        """Hold the folder together with others who only look at the run: nobody goes on with it meanwhile."""
        with (self.path / "run.lock").open("a") as file:
            if not try_lock(file, shared=True):
                raise UsageError(f"a run is going on in {self.path}")
            yield

    def refuse_imported(self, operation: str) -> None:
        """Refuse what makes sense for runs of this program only."""
        if self.spec.imported:
            raise UsageError(
                f"{self.path} was imported from {self.spec.imported.program}: it cannot be {operation}"
            )

    @property
    def agent_file(self) -> Path | None:
        """The agent, if it came from a file."""
        path = self.path / "agent.py"
        return path if path.is_file() else None

    @property
    def trace(self) -> Journal:
        """The steps, a line each."""
        return Journal(self.path / "trace.jsonl")

    @property
    def result(self) -> Result | None:
        """How it ended, if it did."""
        path = self.path / "result.json"
        return _read_record(path, Result).replace(folder=str(self.path)) if path.is_file() else None

    @property
    def model_calls(self) -> Journal:
        """What models were asked, a line each."""
        return Journal(self.path / "model_calls.jsonl")

    def calls(self) -> Iterator[ModelCall]:
        """What models were asked so far, and what they answered."""
        return (call for call, _ in self._calls_with_offsets())

    def _calls_with_offsets(self) -> Iterator[tuple[ModelCall, int]]:
        for number, (line, end) in enumerate(self.model_calls.lines(), 1):
            try:
                yield ModelCall.model_validate_json(line), end
            except ValidationError as error:
                raise Fault(
                    f"{self.model_calls.path}: line {number} is damaged: {describe_validation_error(error)}"
                ) from error

    def steps(self) -> tuple[Step, ...]:
        """What was done so far."""
        return tuple(step for step, _ in self._steps_with_offsets())

    def _steps_with_offsets(self) -> Iterator[tuple[Step, int]]:
        for number, (line, end) in enumerate(self.trace.lines(), 1):
            try:
                step = Step.model_validate_json(line)
            except ValidationError as error:
                raise Fault(
                    f"{self.trace.path}: line {number} is damaged: {describe_validation_error(error)}"
                ) from error
            if step.number != number:
                raise Fault(f"{self.trace.path}: line {number} is step {step.number}")
            yield step, end

    def open_store(self, data: PreparedData | None = None, writable: bool = True) -> Store:
        """Its snapshots; files of the task's data that were never changed are read from there."""
        known = {name: data.public / path for path, (name, _) in data.files.items()} if data else {}
        return Store(self.path / "snapshots", self.path / "workspace" if writable else None, known)

    def rewind(self, step: int | None = None, from_start: bool = False) -> None:
        """Make ready to go on after `step`, or after the last whole one; an old result is kept as evidence.

        `anew` keeps what models said up to there, and nothing else: all steps will be done again.
        """
        ends = [end for _, end in self._steps_with_offsets()]
        if step is not None and not 0 <= step <= len(ends):
            raise UsageError(f"--from-step must be from 0 to {len(ends)}, the last step of {self.path}")
        said = max(
            (end for call, end in self._calls_with_offsets() if step is None or call.step <= step), default=0
        )
        step = 0 if from_start else len(ends) if step is None else step
        snapshots = self.open_store() if (self.path / "snapshots").is_dir() else None
        for _ in snapshots.manifest_lines() if snapshots else ():
            pass  # what is damaged is refused here, while nothing is changed
        for stray in (
            *self.path.glob(".run-*"),
            *self.path.glob("*.part"),
        ):  # which somebody left half done who died
            stray.unlink()
        self.archive_result()  # first, since a result claims all that follows; a kill from here on leaves a run to resume
        self.trace.truncate(ends[step - 1] if step else 0)
        if snapshots:
            snapshots.rewind(step)
        (self.path / GRADES_FILE).unlink(missing_ok=True)  # of steps that may be done otherwise now
        remove_accesses_after(self.path, step)
        self.model_calls.truncate(said)  # last: a step on record whose words are gone could not be replayed

    def archive_result(self) -> None:
        """Keep an old result as evidence, and have none."""
        old = self.path / "result.json"
        if old.is_file():
            tries = len(list(self.path.glob("result-*.json")))
            old.rename(self.path / f"result-{tries + 1}.json")

    def write_result(self, result: Result) -> None:
        """Write the result; the workspace lives on in the last snapshot."""
        self.write_file("result.json", result.model_dump_json(indent=2, exclude={"folder"}))

    def write_file(self, name: str, text: str) -> None:
        """Put a file into the folder, whole or not at all."""
        whole = self.path / f"{name}.part"
        try:
            whole.write_text(text, encoding="utf-8", errors="backslashreplace")
            whole.rename(self.path / name)
        except OSError as error:
            with suppress(OSError):
                whole.unlink()
            raise Fault(
                f"cannot write {name}: {error.strerror}; when that is mended: mlagentbench resume {self.path}"
            ) from error

    def compute_record_hashes(self, step: int) -> dict[str, str]:
        """Hashes of what was recorded, to hold claims against."""
        return {
            "snapshot": self.open_store(writable=False).tree_hash(step),
            "history": _hash_or_empty(self.path / "snapshots" / "manifest.jsonl"),
            "trace": _hash_or_empty(self.trace.path),
            "calls": _hash_or_empty(self.model_calls.path),
        }


def _create_files(folder: Path, contents: dict[str, bytes]) -> None:
    """Put files into a folder that has none of them: all, or on a full disk none."""
    parts = {name: folder / f".run-{os.getpid()}-{name}" for name in contents}
    placed: list[Path] = []
    try:
        for name, part in parts.items():
            part.write_bytes(contents[name])
        for name, part in parts.items():
            os.link(part, folder / name)  # fails if another was quicker
            placed.append(folder / name)
    except BaseException as error:
        for path in placed:
            path.unlink()
        if isinstance(error, FileExistsError):
            raise UsageError(f"another run has just begun in {folder}") from None
        raise
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _read_record(path: Path, record_type: type[RecordT], supported_format: int = 0) -> RecordT:
    try:
        data = path.read_bytes()
        if supported_format:
            reject_newer_format(path, data, supported_format)
        return record_type.model_validate_json(data)
    except ValidationError as error:
        raise UsageError(f"{path} is damaged: {describe_validation_error(error)}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _hash_or_empty(path: Path) -> str:
    return hash_file(path) if path.is_file() and path.stat().st_size else ""
