"""Reads a bundle back; it is somebody else's file, and nothing that it says is believed."""

import errno
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo, is_zipfile

from blake3 import blake3
from pydantic import ValidationError

from mlagentbench.errors import Fault, UsageError
from mlagentbench.home import scratch
from mlagentbench.records import GB
from mlagentbench.reports.bundle import CONTENTS, FILE, FORMAT, STEPS, Contents
from mlagentbench.task import explain
from mlagentbench.versions import refuse_newer
from mlagentbench.words import on_one_line
from mlagentbench.workspace.manifest import Manifest
from mlagentbench.workspace.paths import shown

MOST_FILES = 1_000_000
MOST_BYTES = 64 * GB  # of a workspace as the bundle describes it, which is packed
CHUNK = 1 << 20


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder of a run: the path itself, or what a bundle holds, for a while."""
    if not path.is_file():
        yield path
        return
    with scratch() as room:
        yield unpack(path, room)


@contextmanager
def all_opened(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The same for several."""
    with ExitStack() as stack:
        yield [stack.enter_context(opened(path)) for path in paths]


def unpack(path: Path, room: Path) -> Path:
    """Lay a bundle out below a folder of ours, if all of it is what it says; the folder of the run."""
    if not is_zipfile(path):
        raise UsageError(f"{path} is neither the folder of a run nor a bundle (mlagentbench export RUN)")
    try:
        with ZipFile(path) as bundle:
            entries = _entries(path, bundle)
            contents = _contents(path, bundle, entries)
            target = room / (contents.run if _is_name(contents.run) else "run")
            for name, (expected, _) in contents.files.items():
                _lay(path, bundle, entries[name], expected, target / name)
    except (BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError, struct.error) as error:
        raise _refused(path, on_one_line(str(error))) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # it points to a place before its own beginning
            raise
        raise _refused(path, "it is damaged") from error
    _check_size(path, target)
    return target


def _entries(path: Path, bundle: ZipFile) -> dict[str, ZipInfo]:
    """What the archive lists: plain entries, each once, none packed, and all together no more than the archive is."""
    listed = bundle.infolist()
    entries = {entry.filename: entry for entry in listed}
    if len(entries) != len(listed) or len(listed) > MOST_FILES:
        raise _refused(path, "it lists a name twice, or too many")
    for name, entry in entries.items():
        if name != CONTENTS and not FILE.fullmatch(name):
            raise _refused(path, f"{shown(name)} is no file of a run")
        if entry.compress_type != ZIP_STORED or entry.compress_size != entry.file_size or entry.flag_bits & 1:
            raise _refused(path, f"{name} is packed; a bundle is not")
    if sum(entry.file_size for entry in listed) > path.stat().st_size:
        raise _refused(path, "its entries are larger than it is")
    return entries


def _contents(path: Path, bundle: ZipFile, entries: dict[str, ZipInfo]) -> Contents:
    if CONTENTS not in entries:
        raise _refused(path, f"it has no {CONTENTS}")
    try:
        data = bundle.read(CONTENTS)
        refuse_newer(path, data, FORMAT)
        contents = Contents.model_validate_json(data)
    except ValidationError as error:
        raise _refused(path, f"{CONTENTS}: {explain(error)}") from error
    if differing := contents.files.keys() ^ (entries.keys() - {CONTENTS}):
        raise _refused(path, f"{CONTENTS} and the files differ: {shown(min(differing))}")
    if wrong := [name for name, (_, size) in contents.files.items() if entries[name].file_size != size]:
        raise _refused(path, f"{wrong[0]} has another size than {CONTENTS} says")
    return contents


def _lay(path: Path, bundle: ZipFile, entry: ZipInfo, expected: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = blake3()
    with bundle.open(entry) as source, target.open("xb") as sink:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            sink.write(chunk)
    if digest.hexdigest() != expected:
        raise _refused(path, f"{entry.filename} does not match its hash")


def _check_size(path: Path, target: Path) -> None:
    """Contents are packed: what they say they unpack to is bounded here, and they are cut there when they are read."""
    sizes: dict[str, int] = {}
    total = 0
    try:
        for line in Manifest(target / STEPS).lines():
            for name, entry in line.changed.items():
                total += entry.size - sizes.get(name, 0)
                sizes[name] = entry.size
            total -= sum(sizes.pop(name, 0) for name in line.removed)
            if total > MOST_BYTES:
                raise _refused(path, f"after step {line.step}, its workspace is larger than {MOST_BYTES // GB} GB")
    except Fault as fault:
        raise _refused(path, str(fault)) from fault


def _is_name(name: str) -> bool:
    return 0 < len(name.encode()) <= 200 and "/" not in name and "\0" not in name and name not in (".", "..")


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is not a sound bundle: {why}")
