"""How a run stands, told by its files alone: also one of another process, and one that ended long ago."""

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
MAX_ACTION_CHARS = 80  # characters of an action


class RunStatus(Record):
    """One run as somebody who watches sees it."""

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
    success: bool = False
    valid: bool = False
    ending: Ending | None = None
    note: str = ""
    faults: int = 0


class RunFollower:
    """Looks at one run again and again, and reads only what is new."""

    def __init__(self, place: Path, job: Job | None = None) -> None:
        self.path = place
        self.result: Result | None = None
        self._stamp: FileStamp | None = None
        self._trace, self._calls = (
            JournalTail(place / "trace.jsonl"),
            JournalTail(place / "model_calls.jsonl"),
        )
        self._tokens, self._dollars = 0, 0.0
        self._clock = 0.0  # of the last step
        self._since: float | None = None  # it was done, as far as we saw
        self.status = _initial_status(place, job)

    def refresh(self, index: ResultIndex | None = None) -> RunStatus:
        """How it stands now; what cannot be read just now, for want of files perhaps, stands as it did."""
        with suppress(OSError):
            stamp = _file_stamp(self.path / "result.json")
            if stamp is None:
                self._stamp, self.result = None, None
                self._read_progress()
            elif stamp != self._stamp:
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
        self._stamp, self.result = stamp, result.replace(folder=str(self.path.resolve()))
        names = ("steps", "seconds", "tokens", "dollars", "score", "success", "valid", "ending", "note")
        told: dict[str, Any] = {name: getattr(result, name) for name in names}
        fault = result.ending == "fault"
        told["faults"] = self._count_earlier_faults() + fault if fault else self.status.faults
        self.status = self.status.replace(state="fault" if fault else "finished", action="", **told)

    def _count_earlier_faults(self) -> int:
        """Earlier tries that ended as faults; others were set aside by somebody who resumed from an earlier step."""
        found = 0
        for path in self.path.glob("result-*.json"):
            with suppress(OSError, ValueError):
                found += json.loads(path.read_bytes()).get("ending") == "fault"
        return found

    def _read_progress(self) -> None:
        """Of a run without a result: how far it has come."""
        if not (self.path / "run.json").is_file():
            if self.status.state != "queued":
                self.status = self.status.replace(state="queued")
            return
        told: dict[str, Any] = {"state": "running" if is_locked(self.path / "run.lock") else "stopped"}
        for step in self._trace.read_new_lines():
            self._clock, self._since = step["clock"], monotonic()
            told["steps"], told["action"] = step["number"], _format_action(step["call"])
        if told["state"] != "running":
            self._since = None
        elif self._since is None:
            self._since = monotonic()
        told["seconds"] = self._clock + (monotonic() - self._since if self._since else 0.0)
        if self._calls.was_truncated:
            self._tokens, self._dollars = 0, 0.0
        for call in self._calls.read_new_lines():
            reply = call["reply"] or {}
            self._tokens += reply.get("input_tokens", 0) + reply.get("output_tokens", 0)
            self._dollars += reply.get("dollars", 0.0)
        told |= {"tokens": self._tokens, "dollars": self._dollars, "score": None, "ending": None, "note": ""}
        if any(getattr(self.status, name) != value for name, value in told.items()):
            self.status = self.status.replace(**told)


class JournalTail:
    """The lines that were added to a journal since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0

    @property
    def was_truncated(self) -> bool:
        """Whether it begins anew."""
        try:
            if self.path.stat().st_size >= self._end:
                return False
        except OSError:
            pass
        self._end = 0
        return True

    def read_new_lines(self) -> Iterator[dict[str, Any]]:
        """Each new whole line; of a journal that was rewound, all of them again."""
        if self.was_truncated and not self.path.exists():
            return
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self._end)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                try:
                    told = json.loads(line)
                except ValueError:  # it was rewound and has grown again meanwhile
                    self._end = 0
                    return
                self._end += len(line)
                yield told


def _initial_status(place: Path, job: Job | None) -> RunStatus:
    if job:
        who = job.agent_spec
        told: dict[str, Any] = {
            "task": job.task.rpartition("/")[2],
            "agent": Path(who.agent).name,
            "model": who.model,
        }
        return RunStatus(name=place.name, seed=job.seed, **told)
    try:
        spec = RunFolder(place).spec
    except UsageError as error:
        return RunStatus(name=place.name, task="", agent="", planned=False, state="stopped", note=str(error))
    told = {"task": spec.task.rpartition("/")[2], "agent": spec.agent, "model": spec.model}
    return RunStatus(name=place.name, seed=spec.seed, planned=False, **told)


def _file_stamp(path: Path) -> FileStamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _format_action(call: dict[str, Any]) -> str:
    first = str(next(iter(call["args"].values()), "")).strip().partition("\n")[0]
    return f"{call['action']} {first}".strip()[:MAX_ACTION_CHARS]
