"""Copies a run folder to another machine while the run is in progress."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from mlagentbench.records import Record
from mlagentbench.workspace.tree import write_all

MAX_CHUNK_BYTES = 8 << 20  # approximately: a chunk ends with the file part that exceeds it
MANIFEST, OBJECTS = "snapshots/manifest.jsonl", "snapshots/objects/*/*"
# A file may refer only to files before it. The workspace is not sent, because the snapshots contain it.
SEND_ORDER = [
    "agent.py", "run.json", OBJECTS, "outputs/*", "access/*.jsonl", "*.txt", "result-*.json",
    MANIFEST, "model_calls.jsonl", "trace.jsonl", "result.json",
]  # fmt: skip


class FilePart(Record):
    """A part of a file, starting at `offset`.

    The part is either appended to the file (`appends`), or belongs to a new version of the file, which
    replaces the old one once its last part is written.
    """

    path: str
    offset: int
    data: bytes
    appends: bool = False
    is_last: bool = True


Chunk = tuple[FilePart, ...]


class FolderSender:
    """Reads from a folder what the receiver does not have yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Size and modification time of each file when it was last read.
        self._stamps: dict[str, tuple[int, int]] = {}
        # Length and hash of what was sent of files that may change.
        self._sent: dict[str, tuple[int, bytes]] = {}

    def mark_all_sent(self) -> None:
        """Assume that the receiver has everything that is in the folder now."""
        for name, size in self._find_changes():
            if not _is_object(name):
                self._read_content(name, size)

    def read_new_chunks(self) -> Iterator[Chunk]:
        """Yield chunks for the receiver to write in this order.

        If the transfer is cut off at any point, no file on the other side refers to one that is missing.
        """
        parts: list[FilePart] = []
        chunk_size = 0
        for name, size in self._find_changes():
            read_parts = self._read_object_parts if _is_object(name) else self._read_changed_parts
            for part in read_parts(name, size):
                parts.append(part)
                chunk_size += len(part.data)
                if chunk_size >= MAX_CHUNK_BYTES:
                    yield tuple(parts)
                    parts, chunk_size = [], 0
        if parts:
            yield tuple(parts)

    def _find_changes(self) -> list[tuple[str, int]]:
        """List the names and sizes of new or changed files, in the order to send them.

        The run is in progress, so the search is in reverse order: a file is found before what it refers to.
        """
        changes: dict[str, list[tuple[str, int]]] = {OBJECTS: []}
        for pattern in reversed(SEND_ORDER):
            # Without a new line in the manifest, nothing refers to new objects.
            if pattern != OBJECTS or changes[MANIFEST]:
                changes[pattern] = list(self._find_changes_of(pattern))
        return [file for pattern in SEND_ORDER for file in changes[pattern]]

    def _find_changes_of(self, pattern: str) -> Iterator[tuple[str, int]]:
        for path in sorted(self.folder.glob(pattern)):
            name = path.relative_to(self.folder).as_posix()
            if _is_object(name) and name in self._stamps:
                continue
            with suppress(FileNotFoundError):
                status = path.stat()
                stamp = (status.st_size, status.st_mtime_ns)
                if self._stamps.get(name) != stamp:
                    self._stamps[name] = stamp
                    yield name, status.st_size

    def _read_object_parts(self, name: str, size: int) -> Iterator[FilePart]:
        with (self.folder / name).open("rb") as file:
            for offset in range(0, max(size, 1), MAX_CHUNK_BYTES):
                data, is_last = file.read(MAX_CHUNK_BYTES), offset + MAX_CHUNK_BYTES >= size
                yield FilePart(path=name, offset=offset, data=data, is_last=is_last)

    def _read_changed_parts(self, name: str, size: int) -> Iterator[FilePart]:
        """Read what was appended since the last time, or the whole file if its beginning changed."""
        sent_length, sent_hash = self._sent.get(name, (0, b""))
        content = self._read_content(name, size)
        appends = 0 < sent_length <= len(content) and blake3(content[:sent_length]).digest() == sent_hash
        start = sent_length if appends else 0
        if appends and start == len(content):
            return
        for offset in range(start, max(len(content), 1), MAX_CHUNK_BYTES):
            data, is_last = (
                content[offset : offset + MAX_CHUNK_BYTES],
                offset + MAX_CHUNK_BYTES >= len(content),
            )
            yield FilePart(path=name, offset=offset, data=data, appends=appends, is_last=is_last)

    def _read_content(self, name: str, size: int) -> bytes:
        """Read a file, up to the last complete line if it is a journal, and remember it as sent."""
        with (self.folder / name).open("rb") as file:
            content = file.read(size)
        if name.endswith(".jsonl"):
            content = content[: content.rfind(b"\n") + 1]
        self._sent[name] = (len(content), blake3(content).digest())
        return content


def _is_object(name: str) -> bool:
    return name.startswith("snapshots/objects/")


def write_part(folder: Path, part: FilePart) -> None:
    """Write a received part into the copy of the folder."""
    target = folder / part.path
    target.parent.mkdir(parents=True, exist_ok=True)
    file = target if part.appends else target.with_name(f"{target.name}.part")
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.truncate(fd, part.offset)
        os.lseek(fd, part.offset, os.SEEK_SET)
        write_all(fd, part.data)
    finally:
        os.close(fd)
    if part.is_last and not part.appends:
        file.rename(target)
