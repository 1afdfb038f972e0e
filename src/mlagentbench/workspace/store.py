"""The history of a workspace: contents by hash, and what changed at each step."""

import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from blake3 import blake3

from mlagentbench.errors import ActionError, Fault
from mlagentbench.workspace.diff import difference
from mlagentbench.workspace.manifest import Entry, Line, Manifest, State
from mlagentbench.workspace.objects import Objects
from mlagentbench.workspace.paths import normal, shown, shown_size
from mlagentbench.workspace.restore import lay_out
from mlagentbench.workspace.scan import Bounds, Signature, scan, trusted
from mlagentbench.workspace.scan import TooBig as TooBig
from mlagentbench.workspace.tree import CREATE, PLAIN, Walk, faults, write_all

CONTENT_CAP = 64 << 20
DIFF_CAP = 200_000
QUICK = 1_000_000  # lines times lines of one file, where hundreds of steps are told


class Change(NamedTuple):
    """The paths that a step changed; false if there are none."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self[:])


class Store:
    """Snapshots of one workspace; without the workspace, only a reader of them."""

    def __init__(
        self, folder: Path, workspace: Path | None = None, known: Mapping[str, Path] = MappingProxyType({})
    ) -> None:
        self.folder = folder
        self.workspace = workspace.resolve() if workspace else None
        self._objects = Objects(folder / "objects", known)
        self._manifest = Manifest(folder / "manifest.jsonl")
        self._open = False  # for writing
        self._last: int | None = None
        self._state: State = {}  # after the last step
        self._seen: dict[str, Signature] = {}  # a path that still bears this is still what _state says
        self.mapped: Callable[[], set[int]] = set  # inodes of files that somebody can change without a trace

    def snapshot(
        self, step: int, max_bytes: int | None = None, max_files: int | None = None, max_history: int | None = None
    ) -> Change:
        """Records what changed in the workspace since the last snapshot."""
        if self.workspace is None:
            raise ValueError("this store has no workspace to take a snapshot of")
        with faults(f"snapshot of step {step}"):
            self._open_for_writing()
            if self._last is not None and step < self._last:
                raise Fault(f"step {step} is already past: the last snapshot is of step {self._last}")
            self._objects.most = max_history
            started = time.time_ns()
            with Walk(self.workspace, needs=0o700) as walk:
                found = scan(walk, Bounds(max_bytes, max_files))
                changed = self._changed(walk, found)
        removed = sorted(self._state.keys() - found.keys())
        change = Change(
            tuple(sorted(path for path in changed if path not in self._state)),
            tuple(sorted(path for path in changed if path in self._state)),
            tuple(removed),
        )
        if change:
            self._manifest.append(Line(step, changed, removed))
            self._last = step
            for path in removed:
                del self._state[path]
            self._state.update(changed)
        self._seen = trusted(found, started, self.mapped())
        return change

    def _changed(self, walk: Walk, found: dict[str, Signature]) -> State:
        changed: State = {}
        seen = self._seen
        for path, sign in found.items():
            if seen.get(path) != sign:
                entry = self._entry(walk, path, sign)
                if entry != self._state.get(path):
                    changed[path] = entry
        return changed

    def _entry(self, walk: Walk, path: str, sign: Signature) -> Entry:
        mode = sign[0]
        if stat.S_ISDIR(mode):
            return Entry("folder", mode & PLAIN)
        if stat.S_ISLNK(mode):
            folder, _, name = path.rpartition("/")
            return Entry("link", target=os.readlink(name, dir_fd=walk.folder(folder)))
        fd = walk.file(path)
        try:
            name, size = self._objects.put(fd)
        finally:
            os.close(fd)
        return Entry("file", mode & PLAIN, name, size)

    def restore(
        self,
        step: int,
        folder: Path,
        owner: int | None = None,
        over: Mapping[str, Entry] = MappingProxyType({}),
    ) -> None:
        """Makes a folder exactly what the workspace was after a step, but for what `over` says."""
        wanted = {**self.state(step), **over}
        ours = folder.resolve() == self.workspace
        same = {p: s for p, s in self._seen.items() if ours and self._state.get(p) == wanted.get(p)}
        with faults(f"restoring step {step}"):
            if ours:
                self._open_for_writing()
                self._seen = {}
            lay_out(folder, wanted, lambda path, entry: self._content(path, entry, step), same, owner)
            if ours:
                started = time.time_ns()
                with Walk(folder, needs=0o700) as walk:
                    found = trusted(scan(walk, Bounds()), started, self.mapped())
                self._seen = {p: s for p, s in found.items() if self._state.get(p) == wanted.get(p)}

    def rewind(self, step: int) -> None:
        """Forgets all the steps after this one."""
        with faults(f"rewinding to step {step}"):
            self._open_for_writing()
            self._last = self._manifest.cut(step)
        self._state = self._manifest.state()
        self._seen = {}

    def _open_for_writing(self) -> None:
        if not self._open:
            self._objects.prepare()
            self._last = self._manifest.cut()
            self._state = self._manifest.state()
            self._open = True

    def state(self, step: int) -> State:
        """Every file, folder and link there was after a step."""
        with faults("manifest"):
            return self._manifest.state(step)

    def lines(self) -> Iterator[Line]:
        """What each step changed, oldest first."""
        with faults("manifest"):
            yield from self._manifest.lines()

    def history(self, path: str) -> list[int]:
        """The steps that changed a path, oldest first."""
        with faults("manifest"):
            return [line.step for line in self._manifest.lines() if path in line.changed or path in line.removed]

    def tree_hash(self, step: int) -> str:
        """One hash over all of a state: names, modes, contents, link targets."""
        digest = blake3()
        for path, entry in sorted(self.state(step).items()):
            digest.update(ascii((path, *entry)).encode() + b"\n")
        return digest.hexdigest()

    def content(self, step: int, path: str, cap: int = CONTENT_CAP) -> bytes:
        """One file as it was after a step."""
        name, entry = self._file(step, path)
        if entry.size > cap:
            raise ActionError(f"{shown(path)} is too big ({shown_size(entry.size)})")
        with faults(f"{shown(path)} at step {step}"):
            return b"".join(self._content(name, entry, step))

    def export(self, step: int, path: str, target: Path) -> None:
        """Writes one file as it was after a step to a place of the host's, whole or not at all."""
        self.export_entry(step, *self._file(step, path), target)

    def export_entry(self, step: int, path: str, entry: Entry, target: Path) -> None:
        """The same, of a file that was looked up already: the whole manifest is read for a look."""
        partial = target.with_name(f".{secrets.token_hex(8)}.part")
        with faults(f"{shown(path)} at step {step}"):
            fd = os.open(partial, CREATE, 0o644)
            try:
                for chunk in self._content(path, entry, step):
                    write_all(fd, chunk)
                partial.rename(target)
            except BaseException:
                with suppress(OSError):
                    partial.unlink()
                raise
            finally:
                os.close(fd)

    def diff(self, old: int, new: int, cap: int = DIFF_CAP) -> str:
        """What changed from one step to another: a unified diff of text, one line for anything else."""
        with faults("diff"):
            return difference(
                self.state(old),
                self.state(new),
                lambda path, entry: b"".join(self._content(path, entry, old)),
                lambda path, entry: b"".join(self._content(path, entry, new)),
                cap,
            )

    def eventful(self) -> set[int]:
        """The steps that changed anything."""
        with faults("manifest"):
            return {line.step for line in self._manifest.lines()}

    def changes(self, after: int = 0, cap: int = DIFF_CAP) -> Iterator[tuple[int, str]]:
        """What each step did, as `diff` tells it, in one reading; a content that is not here is only named."""
        state: State = {}
        with faults("diff"):
            for line in self._manifest.lines():
                if line.step > after:
                    before = {path: state[path] for path in (*line.changed, *line.removed) if path in state}
                    yield line.step, difference(before, line.changed, self._at_hand, self._at_hand, cap, QUICK)
                for path in line.removed:
                    state.pop(path, None)
                state.update(line.changed)

    def _at_hand(self, path: str, entry: Entry) -> bytes:
        try:
            return b"".join(self._objects.chunks(entry.hash, entry.size, shown(path)))
        except Fault:
            return b"\0"  # which is no text, so that only kind and size are told

    def check(self) -> list[str]:
        """What is wrong with the store: every content of every step must be there and be right."""
        problems, checked = [], set()
        try:
            for line in self._manifest.lines():
                for path, entry in line.changed.items():
                    if entry.kind == "file" and entry.hash not in checked:
                        checked.add(entry.hash)
                        problems += self._problem(path, entry, line.step)
        except Fault as fault:
            problems.append(str(fault))
        return problems

    def _problem(self, path: str, entry: Entry, step: int) -> list[str]:
        try:
            with faults(f"{shown(path)} at step {step}"):
                for _ in self._content(path, entry, step):
                    pass
        except Fault as fault:
            return [str(fault)]
        return []

    def _content(self, path: str, entry: Entry, step: int) -> Iterator[bytes]:
        return self._objects.chunks(entry.hash, entry.size, f"{shown(path)} at step {step}")

    def _file(self, step: int, path: str) -> tuple[str, Entry]:
        name = normal(path)
        entry = self.state(step).get(name)
        if entry is None:
            raise ActionError(f"{shown(path)} does not exist at step {step}")
        if entry.kind != "file":
            raise ActionError(f"{shown(path)} is a {entry.kind} at step {step}")
        return name, entry
