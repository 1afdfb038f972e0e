"""Reads and writes run folders.

docs/reference/run-folder.md lists every file with its fields.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from mlagentbench.errors import Fault, UsageError
from mlagentbench.preparation.prepare import PreparedData
from mlagentbench.records import RUN_FORMAT, ModelCall, ProgramInfo, Record, Result, RunSpec, Step
from mlagentbench.sandbox.access_log.records import remove_accesses_after
from mlagentbench.system.atomic_write import PARTIAL_SUFFIX, write_atomic
from mlagentbench.system.format_version import reject_newer_format
from mlagentbench.system.hashing import hash_file
from mlagentbench.system.journal import Journal
from mlagentbench.system.lock import try_lock
from mlagentbench.system.stop_token import STOP_FILE
from mlagentbench.task import describe_validation_error
from mlagentbench.workspace.store import Store

RecordT = TypeVar("RecordT", bound=Record)
PROGRAM_LOCK_FILE = "outputs/program-lock.txt"  # what was installed for an external program
GRADES_FILE = "grades.jsonl"  # written by `grade --every-step`: one grade per step


class RunFolder:
    """The folder of one run.

    Attributes:
        path: The absolute path of the folder.
        spec: The content of run.json.
    """

    def __init__(self, path: Path) -> None:
        """Open an existing run folder; raise UsageError if it is not one."""
        self.path = path.resolve()
        if not (self.path / "run.json").is_file():
            raise UsageError(f"{path} is not a run folder: it has no run.json")
        self.spec = _read_record(self.path / "run.json", RunSpec, RUN_FORMAT)

    @classmethod
    def create(cls, path: Path, spec: RunSpec, agent_file: Path | None = None) -> "RunFolder":
        """Create the folder of a new run.

        Args:
            path: The folder. It must be empty or not exist.
            spec: The content of run.json.
            agent_file: The file of the agent, which is copied to agent.py.

        Raises:
            UsageError: The folder is not empty, or cannot be written.
        """
        try:
            str(path.absolute()).encode()
            text = spec.model_dump_json(indent=2).encode()
        except ValueError as error:
            raise UsageError(f"Names must be valid UTF-8 to be recorded: {error}") from error
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                hint = (
                    f" To continue the run: mlagentbench resume {path}"
                    if (path / "run.json").is_file()
                    else ""
                )
                raise UsageError(f"{path} is not empty. Choose another --out.{hint}")
            agent = {"agent.py": agent_file.read_bytes()} if agent_file else {}
            # run.json comes last: it is what makes the folder a run.
            _create_files(path, {**agent, "run.json": text})
        except OSError as error:
            raise UsageError(f"Cannot create a run in {path}: {error.strerror}") from error
        return cls(path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the exclusive lock of the run; the kernel releases it when the process dies."""
        with (self.path / "run.lock").open("w") as file:
            if not try_lock(file):
                raise UsageError(f"Another process is running {self.path}")
            (self.path / STOP_FILE).unlink(missing_ok=True)  # an old request, for an earlier process
            yield

    @contextmanager
    def lock_shared(self) -> Iterator[None]:
        """Hold a shared lock: others may read the run, but it cannot be resumed."""
        with (self.path / "run.lock").open("a") as file:
            if not try_lock(file, shared=True):
                raise UsageError(f"Another process is running {self.path}")
            yield

    def refuse_imported(self, operation: str) -> None:
        """Raise UsageError for imported runs; `operation` completes the sentence "it cannot be …"."""
        if self.spec.imported:
            raise UsageError(
                f"{self.path} was imported from {self.spec.imported.program}, so it cannot be {operation}"
            )

    @property
    def agent_file(self) -> Path | None:
        """The copy of the agent's file, or None if the agent is part of the package."""
        path = self.path / "agent.py"
        return path if path.is_file() else None

    @property
    def trace(self) -> Journal:
        """The journal of steps, trace.jsonl."""
        return Journal(self.path / "trace.jsonl")

    @property
    def result(self) -> Result | None:
        """The content of result.json, or None if the run is not finished."""
        path = self.path / "result.json"
        return _read_record(path, Result).replace(folder=self.path) if path.is_file() else None

    @property
    def model_calls(self) -> Journal:
        """The journal of model calls, model_calls.jsonl."""
        return Journal(self.path / "model_calls.jsonl")

    def calls(self) -> Iterator[ModelCall]:
        """Read the recorded model calls."""
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
        """Read the recorded steps."""
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
        """Open the snapshots of the run.

        Args:
            data: The prepared data of the run. Data files that never changed are not stored in snapshots but
                read from there.
            writable: Whether snapshots will be added.
        """
        data_files = {digest: data.public / path for path, (digest, _) in data.files.items()} if data else {}
        return Store(self.path / "snapshots", self.path / "workspace" if writable else None, data_files)

    def rewind(self, step: int | None = None, from_start: bool = False) -> None:
        """Drop everything after a step, so that the run can be resumed from there.

        The old result.json is kept under the name result-N.json. A kill at any point leaves either the old
        finished run or a run that can be resumed.

        Args:
            step: The last step to keep; by default, the last complete one.
            from_start: Drop all steps and keep only the model calls up to `step`: the agent takes its steps
                again and gets the recorded replies.

        Raises:
            UsageError: There is no such step.
            Fault: The record is damaged at or before that step. Nothing is changed.
        """
        ends = self._step_ends(step)
        calls_end = self._end_of_calls(step)
        step = 0 if from_start else len(ends) if step is None else step
        snapshots = self.open_store() if (self.path / "snapshots").is_dir() else None
        if snapshots:
            snapshots.require_readable(step)  # raises before anything is changed
        # Partial files of a killed process.
        for leftover in (*self.path.glob(".run-*"), *self.path.glob(f"*{PARTIAL_SUFFIX}")):
            leftover.unlink()
        # The result goes first, because it claims everything below. After a kill, the run can be resumed.
        self.archive_result()
        self.trace.truncate(ends[step - 1] if step else 0)
        if snapshots:
            snapshots.rewind(step)
        (self.path / GRADES_FILE).unlink(missing_ok=True)  # its steps may turn out differently now
        remove_accesses_after(self.path, step)
        # Model calls go last: a recorded step without its replies could not be replayed.
        self.model_calls.truncate(calls_end)

    def _step_ends(self, step: int | None) -> list[int]:
        """The offsets in the trace after each step; what is damaged after `step` will be cut off."""
        ends: list[int] = []
        try:
            ends.extend(end for _, end in self._steps_with_offsets())
        except Fault as fault:
            if step is None or step > len(ends):
                raise Fault(f"{fault}. To continue before it: --from-step {len(ends)}") from fault
        if step is not None and not 0 <= step <= len(ends):
            raise UsageError(f"--from-step must be between 0 and {len(ends)}, the last step of {self.path}")
        return ends

    def _end_of_calls(self, step: int | None) -> int:
        """The offset after the last model call up to `step`; a damaged call ends them if a step is named."""
        last_end = 0
        try:
            for call, end in self._calls_with_offsets():
                if step is None or call.step <= step:
                    last_end = end
        except Fault:
            if step is None:
                raise
        return last_end

    def archive_result(self) -> None:
        """Rename result.json to result-N.json, so that the run counts as unfinished."""
        old = self.path / "result.json"
        if old.is_file():
            archived = len(list(self.path.glob("result-*.json")))
            old.rename(self.path / f"result-{archived + 1}.json")

    def write_result(self, result: Result) -> None:
        """Write result.json. The path of the folder is not stored, because a run may be moved."""
        self.write_file("result.json", result.model_dump_json(indent=2, exclude={"folder"}))

    def record_client(self, client: str) -> None:
        """Add the name of a client to run.json, once."""
        if client not in self.spec.clients:
            self.spec = self.spec.replace(clients=(*self.spec.clients, client))
            self.write_file("run.json", self.spec.model_dump_json(indent=2))

    def write_file(self, name: str, text: str) -> None:
        """Write a file into the folder atomically."""
        try:
            write_atomic(self.path / name, text)
        except OSError as error:
            raise Fault(
                f"Cannot write {name}: {error.strerror}. After fixing this: mlagentbench resume {self.path}"
            ) from error

    def record_program(self, program: ProgramInfo, lock: str) -> None:
        """Add the external program of the agent to run.json, and write what was installed for it.

        Raises:
            UsageError: The run was started with another program.
        """
        if self.spec.program is None:
            if lock:
                (self.path / "outputs").mkdir(exist_ok=True)
                self.write_file(PROGRAM_LOCK_FILE, lock)
            self.spec = self.spec.replace(program=program)
            self.write_file("run.json", self.spec.model_dump_json(indent=2))
        elif self.spec.program != program:
            raise UsageError(
                f"{self.path} cannot be resumed: {program.name} changed since it started"
                f" (version {self.spec.program.version or 'unknown'}, now {program.version or 'unknown'})."
            )

    def compute_record_hashes(self, step: int) -> dict[str, str]:
        """Compute the hashes of the record that result.json claims, for a run whose last step is `step`."""
        return {
            "snapshot": self.open_store(writable=False).tree_hash(step),
            "history": _hash_or_empty(self.path / "snapshots" / "manifest.jsonl"),
            "trace": _hash_or_empty(self.trace.path),
            "calls": _hash_or_empty(self.model_calls.path),
        }


def _create_files(folder: Path, contents: dict[str, bytes]) -> None:
    """Create all files or none: after an error, such as a full disk, those already created are removed."""
    parts = {name: folder / f".run-{os.getpid()}-{name}" for name in contents}
    created: list[Path] = []
    try:
        for name, part in parts.items():
            part.write_bytes(contents[name])
        for name, part in parts.items():
            os.link(part, folder / name)  # fails if another process was faster
            created.append(folder / name)
    except BaseException as error:
        for path in created:
            path.unlink()
        if isinstance(error, FileExistsError):
            raise UsageError(f"Another process has just created a run in {folder}") from None
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
