"""Contents by their hash, each stored once; never half of one under its name."""

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from blake3 import blake3
from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from mlagentbench.errors import Fault
from mlagentbench.workspace.paths import shown_size
from mlagentbench.workspace.scan import TooBig
from mlagentbench.workspace.tree import CHUNK, CREATE, chunks, write_all

TINY = 4096  # one block of most disks: compressing less saves nothing
SAMPLE = 16 << 10
WORTH = 0.9
NAME = re.compile("[0-9a-f]{64}")


class Objects:
    """A folder of contents; those in `known` lie elsewhere and are not stored again."""

    def __init__(self, folder: Path, known: Mapping[str, Path]) -> None:
        self.folder = folder
        self.partial = folder.parent / "partial"
        self._known = known
        self._compressor = ZstdCompressor(level=3)
        self.most: int | None = None  # bytes of all contents together
        self._size = 0

    def prepare(self) -> None:
        """Makes the folders, and clears away what a killed writer left half done."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.partial.mkdir(exist_ok=True)
        for left in self.partial.iterdir():
            left.unlink()
        self._size = sum(path.stat().st_size for path in self.folder.glob("*/*"))

    def put(self, fd: int) -> tuple[str, int]:
        """Stores the content of an open file; its hash and size."""
        size = os.fstat(fd).st_size
        if size <= CHUNK:
            data = b"".join(chunks(fd, size))
            name = blake3(data).hexdigest()
            if not self._has(name):
                self._write([data], self._is_worth(data), name)
            return name, len(data)
        digest = blake3()
        for chunk in chunks(fd, size):
            digest.update(chunk)
        name = digest.hexdigest()
        if self._has(name):
            return name, size
        worth = self._is_worth(os.pread(fd, CHUNK, 0)) or self._is_worth(os.pread(fd, CHUNK, size // 2))
        os.lseek(fd, 0, os.SEEK_SET)
        return self._write(chunks(fd, size), worth), size

    def chunks(self, name: str, size: int, what: str) -> Iterator[bytes]:
        """The content piece by piece; the end is reached only if it was the right one."""
        digest, left = blake3(), size
        try:
            for chunk in self._stored(name, what):
                digest.update(chunk)
                left -= len(chunk)
                if left < 0:
                    break
                yield chunk
        except ZstdError:
            left = -1
        if left or digest.hexdigest() != name:
            raise Fault(f"{what}: its stored content {name[:12]} is damaged")

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name[:2]}/{name[2:]}"

    def _has(self, name: str) -> bool:
        if name in self._known and self._known[name].is_file():
            return True
        path = self._path(name)
        return Path(path).exists() or Path(f"{path}.zst").exists()

    def _stored(self, name: str, what: str) -> Iterator[bytes]:
        path = Path(self._path(name))
        packed = path.with_name(f"{path.name}.zst")
        for place in (self._known.get(name), path):
            if place is not None and place.is_file():
                with place.open("rb", buffering=0) as file:
                    yield from iter(lambda: file.read(CHUNK), b"")
                return
        if not packed.is_file():
            raise Fault(f"{what}: its stored content {name[:12]} is missing")
        with packed.open("rb", buffering=0) as file, ZstdDecompressor().stream_reader(file) as reader:
            yield from iter(lambda: reader.read(CHUNK), b"")

    def _is_worth(self, data: bytes) -> bool:
        if len(data) <= TINY:
            return False
        middle = max(0, len(data) // 2 - SAMPLE // 2)
        sample = data[middle : middle + SAMPLE]
        return len(self._compressor.compress(sample)) < WORTH * len(sample)

    def _write(self, content: Iterable[bytes], compress: bool, name: str = "") -> str:
        partial = f"{self.partial}/{secrets.token_hex(8)}"
        fd = os.open(partial, CREATE, 0o644)
        digest = blake3()
        try:
            packer = self._compressor.compressobj() if compress else None
            for chunk in content:
                if not name:
                    digest.update(chunk)
                self._add(fd, packer.compress(chunk) if packer else chunk)
            if packer:
                self._add(fd, packer.flush())
            name = name or digest.hexdigest()
            self._name(partial, self._path(name) + (".zst" if compress else ""))
        except BaseException:
            self._size -= os.fstat(fd).st_size
            with suppress(OSError):
                Path(partial).unlink()
            raise
        finally:
            os.close(fd)
        return name

    def _add(self, fd: int, data: bytes) -> None:
        """Counted before it is written: snapshots of what an agent writes anew at every step could fill any disk."""
        if self.most is not None and self._size + len(data) > self.most:
            raise TooBig(f"the history of the workspace would be larger than {shown_size(self.most)}")
        write_all(fd, data)
        self._size += len(data)

    def _name(self, partial: str, path: str) -> None:
        try:
            Path(partial).rename(path)
        except FileNotFoundError:
            Path(path).parent.mkdir(exist_ok=True)
            Path(partial).rename(path)
