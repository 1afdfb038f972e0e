"""Reads the state of a run from its files, whether it is running in another process or ended long ago."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from pydantic import ValidationError

from mlagentbench.errors import UsageError
from mlagentbench.records import Ending, Record, Result
from mlagentbench.runner.batch.index import FileStamp, ResultIndex
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.folder import RunFolder
from mlagentbench.system.lock import is_locked

RunState = Literal["queued", "running", "stopped", "finished", "fault"]
MAX_ACTION_CHARS = 80
# The fields of Result that a RunStatus repeats.
RESULT_FIELDS = ("steps", "seconds", "tokens", "dollars", "score", "success", "valid", "ending", "note")


class RunStatus(Record):
    """The state of one run, as `watch` shows it.

    `planned` is False for runs in the folder that the current plan does not contain. `faults` counts the
    attempts that ended with a fault.
    """

    name: str
    task: str
    agent: str
    model: str = ""
    seed: int = 0
    planned: bool = True
    state: RunState = "queued"
    steps: int = 0
    action: str = ""
    seconds: float = 0.0
    tokens: int = 0
    dollars: float = 0.0
    score: float | None = None
    success: bool | None = False
    valid: bool = False
    ending: Ending | None = None
    note: str = ""
    faults: int = 0


class RunFollower:
    """Follows one run: each `refresh` reads only what is new."""

    def __init__(self, path: Path, job: Job | None = None) -> None:
        self.path = path
        self.result: Result | None = None
        self._result_stamp: FileStamp | None = None
        self._trace = JournalTail(path / "trace.jsonl")
        self._model_calls = JournalTail(path / "model_calls.jsonl")
        self._tokens, self._dollars = 0, 0.0
        self._last_clock = 0.0  # seconds of the run at its last step
        self._last_step_seen: float | None = None  # when we first saw that step, if the run is in progress
        self.status = _initial_status(path, job)

    def refresh(self, index: ResultIndex | None = None) -> RunStatus:
        """Read the current state. If files cannot be read just now, the last known state is returned."""
        with suppress(OSError):
            stamp = _file_stamp(self.path / "result.json")
            if stamp is None:
                self._result_stamp, self.result = None, None
                self._read_progress()
            elif stamp != self._result_stamp:
                self._read_result(stamp, index)
        return self.status

    def _read_result(self, stamp: FileStamp, index: ResultIndex | None) -> None:
        result = index.take(self.path.name, stamp) if index else None
        if result is None:
            try:
                result = Result.model_validate_json((self.path / "result.json").read_bytes())
            except ValidationError:
                self.status = self.status.replace(state="fault", note="result.json is damaged", ending=None)
                return
            if index:
                index.add(self.path.name, stamp, result)
        self._result_stamp, self.result = stamp, result.replace(folder=self.path.resolve())
        is_fault = result.ending == "fault"
        self.status = self.status.replace(
            state="fault" if is_fault else "finished",
            action="",
            faults=self._count_earlier_faults() + 1 if is_fault else self.status.faults,
            **{name: getattr(result, name) for name in RESULT_FIELDS},
        )

    def _count_earlier_faults(self) -> int:
        """Count earlier attempts that ended with a fault, not those archived by `resume --from-step`."""
        count = 0
        for path in self.path.glob("result-*.json"):
            with suppress(OSError, ValueError):
                count += json.loads(path.read_bytes()).get("ending") == "fault"
        return count

    def _read_progress(self) -> None:
        """Read how far a run without a result has come."""
        if not (self.path / "run.json").is_file():
            if self.status.state != "queued":
                self.status = self.status.replace(state="queued")
            return
        changes: dict[str, Any] = {"state": "running" if is_locked(self.path / "run.lock") else "stopped"}
        for step in self._trace.read_new_lines():
            self._last_clock, self._last_step_seen = step["clock"], monotonic()
            changes["steps"], changes["action"] = step["number"], _format_action(step["call"])
        if changes["state"] != "running":
            self._last_step_seen = None
        elif self._last_step_seen is None:
            self._last_step_seen = monotonic()
        seconds_since_step = monotonic() - self._last_step_seen if self._last_step_seen else 0.0
        changes["seconds"] = self._last_clock + seconds_since_step
        if self._model_calls.reset_if_truncated():
            self._tokens, self._dollars = 0, 0.0
        for call in self._model_calls.read_new_lines():
            reply = call["reply"] or {}
            self._tokens += reply.get("input_tokens", 0) + reply.get("output_tokens", 0)
            self._dollars += reply.get("dollars", 0.0)
        changes |= {
            "tokens": self._tokens,
            "dollars": self._dollars,
            "score": None,
            "ending": None,
            "note": "",
        }
        if any(getattr(self.status, name) != value for name, value in changes.items()):
            self.status = self.status.replace(**changes)


class JournalTail:
    """Reads the lines that were added to a journal since the last read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def reset_if_truncated(self) -> bool:
        """Start from the beginning if the journal is shorter than what was read, and return whether it is."""
        try:
            if self.path.stat().st_size >= self._offset:
                return False
        except OSError:
            pass
        self._offset = 0
        return True

    def read_new_lines(self) -> Iterator[dict[str, Any]]:
        """Yield each new complete line; after a rewind, all lines again."""
        if self.reset_if_truncated() and not self.path.exists():
            return
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                try:
                    content = json.loads(line)
                except ValueError:  # the journal was rewound and has grown again since the last read
                    self._offset = 0
                    return
                self._offset += len(line)
                yield content


def _initial_status(path: Path, job: Job | None) -> RunStatus:
    if job:
        return RunStatus(
            name=path.name,
            task=job.task.rpartition("/")[2],
            agent=Path(job.agent_spec.agent).name,
            model=job.agent_spec.model,
            seed=job.seed,
        )
    try:
        spec = RunFolder(path).spec
    except UsageError as error:
        return RunStatus(name=path.name, task="", agent="", planned=False, state="stopped", note=str(error))
    return RunStatus(
        name=path.name,
        task=spec.task.rpartition("/")[2],
        agent=spec.agent,
        model=spec.model,
        seed=spec.seed,
        planned=False,
    )


def _file_stamp(path: Path) -> FileStamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _format_action(call: dict[str, Any]) -> str:
    """The action and the first line of its first argument."""
    first_argument = str(next(iter(call["args"].values()), "")).strip().partition("\n")[0]
    return f"{call['action']} {first_argument}".strip()[:MAX_ACTION_CHARS]
