"""Stores file contents by hash, each once; an object is complete as soon as its name exists."""

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from blake3 import blake3
from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from mlagentbench.errors import Fault
from mlagentbench.workspace.paths import format_size
from mlagentbench.workspace.scan import WorkspaceTooLarge
from mlagentbench.workspace.tree import CHUNK_BYTES, CREATE_FLAGS, read_chunks, write_all

MIN_COMPRESS_BYTES = 4096  # one block of most file systems: compressing less saves nothing
SAMPLE_BYTES = 16 << 10
MAX_COMPRESSED_RATIO = 0.9
HASH_PATTERN = re.compile("[0-9a-f]{64}")


class ObjectStore:
    """A folder of contents; those in `external` are stored elsewhere and not stored again."""

    def __init__(self, folder: Path, external: Mapping[str, Path]) -> None:
        self.folder = folder
        self.partial = folder.parent / "partial"
        self._external = external
        self._compressor = ZstdCompressor(level=3)
        self.max_total_bytes: int | None = None  # of all contents together
        self._total_bytes = 0

    def open_for_writing(self) -> None:
        """Create the folders, and remove incomplete files of a killed writer."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.partial.mkdir(exist_ok=True)
        for path in self.partial.iterdir():
            path.unlink()
        self._total_bytes = sum(path.stat().st_size for path in self.folder.glob("*/*"))

    def put(self, fd: int) -> tuple[str, int]:
        """Store the content of an open file; return its hash and size."""
        size = os.fstat(fd).st_size
        if size <= CHUNK_BYTES:
            data = b"".join(read_chunks(fd, size))
            name = blake3(data).hexdigest()
            if not self.has(name):
                self._write([data], self._is_compressible(data), name)
            return name, len(data)
        digest = blake3()
        for chunk in read_chunks(fd, size):
            digest.update(chunk)
        name = digest.hexdigest()
        if self.has(name):
            return name, size
        compress = any(self._is_compressible(os.pread(fd, CHUNK_BYTES, offset)) for offset in (0, size // 2))
        os.lseek(fd, 0, os.SEEK_SET)
        return self._write(read_chunks(fd, size), compress), size

    def read_chunks(self, name: str, size: int, subject: str) -> Iterator[bytes]:
        """Yield the content in chunks; raise a Fault at the end if it does not match its hash."""
        digest, bytes_left = blake3(), size
        try:
            for chunk in self._read_stored(name, subject):
                digest.update(chunk)
                bytes_left -= len(chunk)
                if bytes_left < 0:
                    break
                yield chunk
        except ZstdError:
            bytes_left = -1
        if bytes_left or digest.hexdigest() != name:
            raise Fault(f"{subject}: its stored content {name[:12]} is damaged")

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name[:2]}/{name[2:]}"

    def has(self, name: str) -> bool:
        """Whether a content is stored, or part of the task's data."""
        if name in self._external and self._external[name].is_file():
            return True
        path = self._path(name)
        return os.path.exists(path) or os.path.exists(f"{path}.zst")  # noqa: PTH110 - for every changed file

    def _read_stored(self, name: str, subject: str) -> Iterator[bytes]:
        path = Path(self._path(name))
        compressed = path.with_name(f"{path.name}.zst")
        for candidate in (self._external.get(name), path):
            if candidate is not None and candidate.is_file():
                with candidate.open("rb", buffering=0) as file:
                    yield from iter(lambda: file.read(CHUNK_BYTES), b"")
                return
        if not compressed.is_file():
            raise Fault(f"{subject}: its stored content {name[:12]} is missing")
        with compressed.open("rb", buffering=0) as file, ZstdDecompressor().stream_reader(file) as reader:
            yield from iter(lambda: reader.read(CHUNK_BYTES), b"")

    def _is_compressible(self, data: bytes) -> bool:
        if len(data) <= MIN_COMPRESS_BYTES:
            return False
        middle = max(0, len(data) // 2 - SAMPLE_BYTES // 2)
        sample = data[middle : middle + SAMPLE_BYTES]
        return len(self._compressor.compress(sample)) < MAX_COMPRESSED_RATIO * len(sample)

    def _write(self, content: Iterable[bytes], compress: bool, name: str = "") -> str:
        partial = f"{self.partial}/{secrets.token_hex(8)}"
        fd = os.open(partial, CREATE_FLAGS, 0o644)
        digest = blake3()
        try:
            compressor = self._compressor.compressobj() if compress else None
            for chunk in content:
                if not name:
                    digest.update(chunk)
                self._write_counted(fd, compressor.compress(chunk) if compressor else chunk)
            if compressor:
                self._write_counted(fd, compressor.flush())
            name = name or digest.hexdigest()
            self._move_into_place(partial, self._path(name) + (".zst" if compress else ""))
        except BaseException:
            self._total_bytes -= os.fstat(fd).st_size
            with suppress(OSError):
                Path(partial).unlink()
            raise
        finally:
            os.close(fd)
        return name

    def _write_counted(self, fd: int, data: bytes) -> None:
        """Check the size limit first: an agent that rewrites files at every step could fill any disk."""
        if self.max_total_bytes is not None and self._total_bytes + len(data) > self.max_total_bytes:
            raise WorkspaceTooLarge(
                f"the history of the workspace would be larger than {format_size(self.max_total_bytes)}"
            )
        write_all(fd, data)
        self._total_bytes += len(data)

    def _move_into_place(self, partial: str, path: str) -> None:
        try:
            os.rename(partial, path)  # noqa: PTH104 - for every changed file
        except FileNotFoundError:
            Path(path).parent.mkdir(exist_ok=True)
            os.rename(partial, path)  # noqa: PTH104
