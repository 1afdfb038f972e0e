"""What is new in a run's folder, as pieces that travel between machines and are put in place on the other side."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from mlagentbench.records import Record
from mlagentbench.workspace.tree import write_all

MAX_CHUNK_BYTES = 8 << 20  # bytes of a parcel, about
MANIFEST, OBJECTS = "snapshots/manifest.jsonl", "snapshots/objects/*/*"
# What comes later may speak of what comes earlier. The workspace stays where it is: snapshots tell it.
SEND_ORDER = [
    "agent.py", "run.json", OBJECTS, "outputs/*", "access/*.jsonl", "*.txt", "result-*.json",
    MANIFEST, "model_calls.jsonl", "trace.jsonl", "result.json",
]  # fmt: skip


class FilePart(Record):
    """Bytes of a file from `offset` on: it either grows by them, or appears when its last piece is there."""

    path: str
    offset: int
    data: bytes
    appends: bool = False
    is_last: bool = True


Chunk = tuple[FilePart, ...]


class FolderSender:
    """Looks at a folder again and again, and tells what the other side does not have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, tuple[int, int]] = {}
        self._sent: dict[str, tuple[int, bytes]] = {}  # how much of a file that may change, and its hash

    def mark_all_sent(self) -> None:
        """The other side has all that is here now."""
        for name, size in self._find_changes():
            if not _is_object(name):
                self._read_content(name, size)

    def read_new_chunks(self) -> Iterator[Chunk]:
        """Parcels to put in place one after another; wherever that is cut off, nothing speaks of what is not there."""
        parcel: list[FilePart] = []
        size = 0
        for name, length in self._find_changes():
            for piece in (
                self._read_object_parts(name, length)
                if _is_object(name)
                else self._read_changed_parts(name, length)
            ):
                parcel.append(piece)
                size += len(piece.data)
                if size >= MAX_CHUNK_BYTES:
                    yield tuple(parcel)
                    parcel, size = [], 0
        if parcel:
            yield tuple(parcel)

    def _find_changes(self) -> list[tuple[str, int]]:
        """What is new or different, and how long it is; looked at backwards, since the run goes on meanwhile."""
        found: dict[str, list[tuple[str, int]]] = {OBJECTS: []}
        for pattern in reversed(SEND_ORDER):
            if pattern != OBJECTS or found[MANIFEST]:  # nothing speaks of other objects
                found[pattern] = list(self._matching(pattern))
        return [each for pattern in SEND_ORDER for each in found[pattern]]

    def _matching(self, pattern: str) -> Iterator[tuple[str, int]]:
        for path in sorted(self.folder.glob(pattern)):
            name = path.relative_to(self.folder).as_posix()
            if _is_object(name) and name in self._seen:
                continue
            with suppress(FileNotFoundError):
                status = path.stat()
                stamp = (status.st_size, status.st_mtime_ns)
                if self._seen.get(name) != stamp:
                    self._seen[name] = stamp
                    yield name, status.st_size

    def _read_object_parts(self, name: str, size: int) -> Iterator[FilePart]:
        with (self.folder / name).open("rb") as file:
            for offset in range(0, max(size, 1), MAX_CHUNK_BYTES):
                yield FilePart(
                    path=name,
                    offset=offset,
                    data=file.read(MAX_CHUNK_BYTES),
                    is_last=offset + MAX_CHUNK_BYTES >= size,
                )

    def _read_changed_parts(self, name: str, size: int) -> Iterator[FilePart]:
        """What was added since the last time; all of it, if what was there before is not the same any more."""
        before, known = self._sent.get(name, (0, b""))
        data = self._read_content(name, size)
        grows = 0 < before <= len(data) and blake3(data[:before]).digest() == known
        start = before if grows else 0
        if grows and start == len(data):
            return
        for offset in range(start, max(len(data), 1), MAX_CHUNK_BYTES):
            last = offset + MAX_CHUNK_BYTES >= len(data)
            yield FilePart(
                path=name,
                offset=offset,
                data=data[offset : offset + MAX_CHUNK_BYTES],
                appends=grows,
                is_last=last,
            )

    def _read_content(self, name: str, size: int) -> bytes:
        with (self.folder / name).open("rb") as file:
            data = file.read(size)
        if name.endswith(".jsonl"):
            data = data[: data.rfind(b"\n") + 1]
        self._sent[name] = (len(data), blake3(data).digest())
        return data


def _is_object(name: str) -> bool:
    return name.startswith("snapshots/objects/")


def write_part(folder: Path, piece: FilePart) -> None:
    """Put a piece where it belongs."""
    target = folder / piece.path
    target.parent.mkdir(parents=True, exist_ok=True)
    file = target if piece.appends else target.with_name(f"{target.name}.part")
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.truncate(fd, piece.offset)
        os.lseek(fd, piece.offset, os.SEEK_SET)
        write_all(fd, piece.data)
    finally:
        os.close(fd)
    if piece.is_last and not piece.appends:
        file.rename(target)
