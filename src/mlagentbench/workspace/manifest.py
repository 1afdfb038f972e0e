"""The append-only manifest of a workspace: one line per step with what it changed."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mlagentbench.errors import Fault
from mlagentbench.system.journal import Journal
from mlagentbench.workspace.object_store import HASH_PATTERN
from mlagentbench.workspace.tree import PERMISSION_BITS

UNSAFE_PARTS = {"", ".", ".."}
ENCODER = json.JSONEncoder(separators=(",", ":"))  # ASCII escapes preserve names that are invalid UTF-8
LINE_START = re.compile(r'\{"step":(\d{1,18}),')


class Entry(NamedTuple):
    """One file, folder or link at one step."""

    kind: Literal["file", "folder", "link"]
    mode: int = 0
    hash: str = ""
    size: int = 0
    target: str = ""


State = dict[str, Entry]


class ManifestLine(NamedTuple):
    """What one step changed."""

    step: int
    changed: State
    removed: list[str]


class Manifest:
    """The manifest file of one run; an incomplete last line, left by a kill or a full disk, is ignored."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)

    def lines(self) -> Iterator[ManifestLine]:
        """Yield all lines, oldest first."""
        for line, _ in self._lines_with_offsets():
            yield line

    def state(self, step: int | None = None) -> State:
        """Return everything that existed after a step, by default after the last."""
        state: State = {}
        for line, _ in self._lines_with_offsets(step):
            if step is not None and line.step > step:
                break
            for path in line.removed:
                state.pop(path, None)
            state.update(line.changed)
        return state

    def append(self, line: ManifestLine) -> None:
        """Append a line atomically."""
        changed = {path: _entry_to_json(entry) for path, entry in line.changed.items()}
        record = {"step": line.step, "changed": changed, "removed": line.removed}
        self._journal.append(ENCODER.encode(record))

    def truncate(self, step: int | None = None) -> int | None:
        """Remove an incomplete last line, and all lines after `step`; return the last remaining step."""
        end, last = self.find_end(step)
        self._journal.truncate(end)
        return last

    def find_end(self, step: int | None = None) -> tuple[int, int | None]:
        """Return the offset after the lines up to `step`, and the last of their steps.

        Raises:
            Fault: A line is damaged that belongs, or may belong, to these steps.
        """
        end, last = 0, None
        for line, offset in self._lines_with_offsets(step):
            if step is not None and line.step > step:
                break
            end, last = offset, line.step
        return end, last

    def _lines_with_offsets(self, last_step: int | None = None) -> Iterator[tuple[ManifestLine, int]]:
        """Yield the lines. A damaged one ends them if it is known to be later than `last_step`."""
        step = -1
        for number, (text, end) in enumerate(self._journal.lines(), 1):
            try:
                line = _parse_line(json.loads(text))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                if end >= self._journal.path.stat().st_size:
                    return
                if last_step is not None and (step >= last_step or _step_of(text) > last_step):
                    return
                raise Fault(f"{self._journal.path}: line {number} is damaged") from error
            step = line.step
            yield line, end


def _step_of(text: str) -> int:
    """The step of a damaged line, if its beginning is intact; -1 if not."""
    start = LINE_START.match(text)
    return int(start[1]) if start else -1


def _entry_to_json(entry: Entry) -> dict[str, Any]:
    match entry.kind:
        case "file":
            return {"kind": "file", "mode": entry.mode, "hash": entry.hash, "size": entry.size}
        case "folder":
            return {"kind": "folder", "mode": entry.mode}
    return {"kind": "link", "target": entry.target}


def _parse_line(record: dict[str, Any]) -> ManifestLine:
    changed = {_check_inside(path): _parse_entry(fields) for path, fields in record["changed"].items()}
    return ManifestLine(
        _check_integer(record["step"]), changed, [_check_inside(path) for path in record["removed"]]
    )


def _check_inside(path: str) -> str:
    # A published run is not trusted: its paths must not lead out of the folder that it is restored to.
    if not UNSAFE_PARTS.isdisjoint(path.split("/")):
        raise ValueError(path)
    return _check_name(path)


def _parse_entry(fields: dict[str, Any]) -> Entry:
    entry = Entry(**fields)
    _check_integer(entry.size)
    _check_name(entry.target)
    is_known_kind = entry.kind in ("file", "folder", "link")
    if not is_known_kind or _check_integer(entry.mode) != entry.mode & PERMISSION_BITS:
        raise ValueError(fields)
    if entry.kind == "link" and not entry.target:
        raise ValueError(fields)
    if entry.kind == "file" and not HASH_PATTERN.fullmatch(entry.hash):
        raise ValueError(fields)
    return entry


def _check_integer(number: object) -> int:
    if type(number) is not int or not 0 <= number < 1 << 63:  # bool is a subclass of int
        raise ValueError(number)
    return number


def _check_name(text: str) -> str:
    """Reject what the kernel does not accept as a name: NUL bytes and unpaired surrogates."""
    if b"\0" in os.fsencode(text):
        raise ValueError(text)
    return text
