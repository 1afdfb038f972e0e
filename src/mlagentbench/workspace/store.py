"""The history of a workspace: file contents by hash, and what changed at each step."""

import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from blake3 import blake3

from mlagentbench.errors import ActionError, Fault
from mlagentbench.workspace.diff import format_diff
from mlagentbench.workspace.manifest import Entry, Manifest, ManifestLine, State
from mlagentbench.workspace.object_store import ObjectStore
from mlagentbench.workspace.paths import format_path, format_size, normalize_path
from mlagentbench.workspace.restore import restore_state
from mlagentbench.workspace.scan import Signature, WorkspaceLimits, reliable_signatures, scan_workspace
from mlagentbench.workspace.scan import WorkspaceTooLarge as WorkspaceTooLarge
from mlagentbench.workspace.tree import (
    CREATE_FLAGS,
    PERMISSION_BITS,
    TreeWalker,
    os_errors_as_faults,
    write_all,
)

MAX_CONTENT_BYTES = 64 << 20
MAX_DIFF_CHARS = 200_000
DIFF_CACHE_FILES = (
    16  # contents, each of at most MAX_DIFF_FILE_BYTES, kept while the steps of a run are diffed
)
MAX_LINE_PAIRS_PER_STEP = 1_000_000  # lines times lines of one file, when hundreds of steps are diffed


class ChangedPaths(NamedTuple):
    """The paths that a step changed; falsy if there are none."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self[:])


class Store:
    """Snapshots of one workspace; without a workspace, snapshots can only be read.

    Args:
        folder: Where the snapshots are stored.
        workspace: The workspace to take snapshots of and to restore.
        external: Files that are stored elsewhere, by hash: their content is not stored again.
    """

    def __init__(
        self,
        folder: Path,
        workspace: Path | None = None,
        external: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        self.folder = folder
        self.workspace = workspace.resolve() if workspace else None
        self._objects = ObjectStore(folder / "objects", external)
        self._manifest = Manifest(folder / "manifest.jsonl")
        self._is_open_for_writing = False
        self._last_step: int | None = None
        self._state: State = {}  # after the last step
        # A path with the same signature still has the entry in _state.
        self._signatures: dict[str, Signature] = {}
        # Inodes of memory-mapped files, which can change without a new signature.
        self.mapped_inodes: Callable[[], set[int]] = set
        # Files that a step may write again with the same content; the manifest then names them as changed.
        self.tracked_paths: Collection[str] = ()
        self._tracked_signatures: dict[str, Signature] = {}

    def snapshot(
        self,
        step: int,
        max_bytes: int | None = None,
        max_files: int | None = None,
        max_history_bytes: int | None = None,
    ) -> ChangedPaths:
        """Record what changed in the workspace since the last snapshot.

        Raises:
            WorkspaceTooLarge: If the workspace or its history exceeds a limit.
            Fault: If the disk is full, or a later step was already recorded.
        """
        if self.workspace is None:
            raise ValueError("This store has no workspace.")
        with os_errors_as_faults(f"snapshot of step {step}"):
            self._open_for_writing()
            if self._last_step is not None and step < self._last_step:
                raise Fault(f"cannot record step {step}: the last snapshot is of step {self._last_step}")
            self._objects.max_total_bytes = max_history_bytes
            started = time.time_ns()
            with TreeWalker(self.workspace, required_mode=0o700) as walker:
                signatures = scan_workspace(walker, WorkspaceLimits(max_bytes, max_files))
                changed = self._record_changes(walker, signatures)
        removed = sorted(self._state.keys() - signatures.keys())
        changed_paths = ChangedPaths(
            added=tuple(sorted(path for path in changed if path not in self._state)),
            modified=tuple(sorted(path for path in changed if path in self._state)),
            removed=tuple(removed),
        )
        if changed_paths:
            self._manifest.append(ManifestLine(step, changed, removed))
            self._last_step = step
            for path in removed:
                del self._state[path]
            self._state.update(changed)
        self._signatures = reliable_signatures(signatures, started, self.mapped_inodes())
        self._remember_tracked(signatures)
        return changed_paths

    def _record_changes(self, walker: TreeWalker, signatures: dict[str, Signature]) -> State:
        changed: State = {}
        known = self._signatures
        for path, signature in signatures.items():
            if known.get(path) != signature:
                entry = self._record_entry(walker, path, signature)
                was_rewritten = signature != self._tracked_signatures.get(path, signature)
                if was_rewritten or entry != self._state.get(path):
                    changed[path] = entry
        return changed

    def _remember_tracked(self, signatures: dict[str, Signature]) -> None:
        self._tracked_signatures = {
            path: signatures[path] for path in self.tracked_paths if path in signatures
        }

    def _record_entry(self, walker: TreeWalker, path: str, signature: Signature) -> Entry:
        mode = signature[0]
        if stat.S_ISDIR(mode):
            return Entry("folder", mode & PERMISSION_BITS)
        if stat.S_ISLNK(mode):
            folder, _, name = path.rpartition("/")
            return Entry("link", target=os.readlink(name, dir_fd=walker.open_folder(folder)))
        fd = walker.open_file(path)
        try:
            content_hash, size = self._objects.put(fd)
        finally:
            os.close(fd)
        return Entry("file", mode & PERMISSION_BITS, content_hash, size)

    def restore(
        self,
        step: int,
        folder: Path,
        owner: int | None = None,
        overrides: Mapping[str, Entry] = MappingProxyType({}),
    ) -> None:
        """Make a folder identical to the workspace after a step, except for the entries in `overrides`.

        Args:
            step: The step whose state is restored.
            folder: The folder to restore to: the workspace itself or any other.
            owner: The user and group id that the files get; by default they belong to this process.
            overrides: Entries by path that replace those of the step.

        Raises:
            Fault: If stored content is missing or damaged, or the disk is full.
        """
        state = {**self.state(step), **overrides}
        is_workspace = folder.resolve() == self.workspace
        unchanged = {
            path: signature
            for path, signature in self._signatures.items()
            if is_workspace and self._state.get(path) == state.get(path)
        }
        with os_errors_as_faults(f"restoring step {step}"):
            if is_workspace:
                self._open_for_writing()
                self._signatures = {}
            restore_state(
                folder, state, lambda path, entry: self._read_chunks(path, entry, step), unchanged, owner
            )
            if is_workspace:
                started = time.time_ns()
                with TreeWalker(folder, required_mode=0o700) as walker:
                    signatures = scan_workspace(walker, WorkspaceLimits())
                self._remember_tracked(signatures)
                self._signatures = {
                    path: signature
                    for path, signature in reliable_signatures(
                        signatures, started, self.mapped_inodes()
                    ).items()
                    if self._state.get(path) == state.get(path)
                }

    def rewind(self, step: int) -> None:
        """Remove all later steps from the history."""
        with os_errors_as_faults(f"rewinding to step {step}"):
            self._last_step = self._manifest.truncate(step)  # first: what is cut off may be damaged
            self._open_for_writing()
        self._state = self._manifest.state()
        self._signatures = {}

    def _open_for_writing(self) -> None:
        if not self._is_open_for_writing:
            self._objects.open_for_writing()
            self._last_step = self._manifest.truncate()
            self._state = self._manifest.state()
            self._is_open_for_writing = True

    def require_readable(self, step: int) -> None:
        """Raise a Fault if the history up to a step is damaged."""
        with os_errors_as_faults("manifest"):
            self._manifest.find_end(step)

    def find_missing_content(self, step: int) -> list[str]:
        """Return the files of a step whose content is not stored any more; contents are not read."""
        files = ((path, entry) for path, entry in self.state(step).items() if entry.kind == "file")
        return sorted(path for path, entry in files if not self._objects.has(entry.hash))

    def state(self, step: int) -> State:
        """Return every file, folder and link that existed after a step."""
        if self._is_open_for_writing and step >= (self._last_step or 0):
            return dict(self._state)
        with os_errors_as_faults("manifest"):
            return self._manifest.state(step)

    def manifest_lines(self) -> Iterator[ManifestLine]:
        """Yield what each step changed, oldest first."""
        with os_errors_as_faults("manifest"):
            yield from self._manifest.lines()

    def history(self, path: str) -> dict[int, Entry | None]:
        """Return what each step that changed a path left there, oldest first; None if it was removed."""
        with os_errors_as_faults("manifest"):
            return {
                line.step: line.changed.get(path)
                for line in self._manifest.lines()
                if path in line.changed or path in line.removed
            }

    def tree_hash(self, step: int) -> str:
        """Hash a whole state: names, modes, contents and link targets."""
        digest = blake3()
        for path, entry in sorted(self.state(step).items()):
            digest.update(ascii((path, *entry)).encode() + b"\n")
        return digest.hexdigest()

    def read_content(self, step: int, path: str, max_bytes: int = MAX_CONTENT_BYTES) -> bytes:
        """Return the content of one file as it was after a step."""
        name, entry = self._find_file(step, path)
        if entry.size > max_bytes:
            raise ActionError(f"{format_path(path)} is too big ({format_size(entry.size)})")
        with os_errors_as_faults(f"{format_path(path)} at step {step}"):
            return b"".join(self._read_chunks(name, entry, step))

    def export(self, step: int, path: str, target: Path) -> None:
        """Write one file as it was after a step to a path on the host, atomically."""
        self.export_entry(step, *self._find_file(step, path), target)

    def export_entry(self, step: int, path: str, entry: Entry, target: Path) -> None:
        """Like `export`, for an entry that is already known: a lookup reads the whole manifest."""
        partial = target.with_name(f".{secrets.token_hex(8)}.part")
        with os_errors_as_faults(f"{format_path(path)} at step {step}"):
            fd = os.open(partial, CREATE_FLAGS, 0o644)
            try:
                for chunk in self._read_chunks(path, entry, step):
                    write_all(fd, chunk)
                partial.rename(target)
            except BaseException:
                with suppress(OSError):
                    partial.unlink()
                raise
            finally:
                os.close(fd)

    def diff(self, old: int, new: int, max_chars: int = MAX_DIFF_CHARS) -> str:
        """Return what changed between two steps: a unified diff of text files, one line for anything else."""
        with os_errors_as_faults("diff"):
            return format_diff(
                self.state(old),
                self.state(new),
                lambda path, entry: b"".join(self._read_chunks(path, entry, old)),
                lambda path, entry: b"".join(self._read_chunks(path, entry, new)),
                max_chars,
            )

    def steps_with_changes(self) -> set[int]:
        """Return the steps that changed anything."""
        with os_errors_as_faults("manifest"):
            return {line.step for line in self._manifest.lines()}

    def iter_step_diffs(self, after: int = 0, max_chars: int = MAX_DIFF_CHARS) -> Iterator[tuple[int, str]]:
        """Yield each step and its diff, reading the manifest once; missing content is not diffed."""
        state: State = {}
        read = lru_cache(DIFF_CACHE_FILES)(
            self._content_or_placeholder
        )  # what is new is old in the next diff
        with os_errors_as_faults("diff"):
            for line in self._manifest.lines():
                if line.step > after:
                    before = {path: state[path] for path in (*line.changed, *line.removed) if path in state}
                    diff = format_diff(before, line.changed, read, read, max_chars, MAX_LINE_PAIRS_PER_STEP)
                    yield line.step, diff
                for path in line.removed:
                    state.pop(path, None)
                state.update(line.changed)

    def _content_or_placeholder(self, path: str, entry: Entry) -> bytes:
        try:
            return b"".join(self._objects.read_chunks(entry.hash, entry.size, format_path(path)))
        except Fault:
            return b"\0"  # not text, so the diff shows only kind and size

    def find_problems(self) -> list[str]:
        """Check that the content of every step is stored and undamaged; return one message per problem."""
        problems, checked = [], set()
        try:
            for line in self._manifest.lines():
                for path, entry in line.changed.items():
                    if entry.kind == "file" and entry.hash not in checked:
                        checked.add(entry.hash)
                        problems += self._entry_problems(path, entry, line.step)
        except Fault as fault:
            problems.append(str(fault))
        return problems

    def _entry_problems(self, path: str, entry: Entry, step: int) -> list[str]:
        try:
            with os_errors_as_faults(f"{format_path(path)} at step {step}"):
                for _ in self._read_chunks(path, entry, step):
                    pass
        except Fault as fault:
            return [str(fault)]
        return []

    def _read_chunks(self, path: str, entry: Entry, step: int) -> Iterator[bytes]:
        return self._objects.read_chunks(entry.hash, entry.size, f"{format_path(path)} at step {step}")

    def _find_file(self, step: int, path: str) -> tuple[str, Entry]:
        name = normalize_path(path)
        entry = self.state(step).get(name)
        if entry is None:
            raise ActionError(f"{format_path(path)} does not exist at step {step}")
        if entry.kind != "file":
            raise ActionError(f"{format_path(path)} is a {entry.kind} at step {step}")
        return name, entry
