"""Reads a bundle back; it is somebody else's file, and nothing that it says is believed."""

import errno
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo, is_zipfile

from blake3 import blake3
from pydantic import ValidationError

from mlagentbench.bundles.write import (
    BUNDLE_FORMAT,
    FILE_PATTERN,
    MANIFEST_NAME,
    SNAPSHOT_MANIFEST,
    BundleManifest,
)
from mlagentbench.errors import Fault, UsageError
from mlagentbench.formatting import to_single_line
from mlagentbench.records import BYTES_PER_GB
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.format_version import reject_newer_format
from mlagentbench.task import describe_validation_error
from mlagentbench.workspace.manifest import Manifest
from mlagentbench.workspace.paths import format_path

MAX_BUNDLE_FILES = 1_000_000
MAX_WORKSPACE_BYTES = 64 * BYTES_PER_GB  # of a workspace as the bundle describes it, which is packed
CHUNK_BYTES = 1 << 20


@contextmanager
def open_run_or_bundle(path: Path) -> Iterator[Path]:
    """The folder of a run: the path itself, or what a bundle holds, for a while."""
    if not path.is_file():
        yield path
        return
    with temporary_dir() as room:
        yield unpack_bundle(path, room)


@contextmanager
def open_runs_or_bundles(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The same for several."""
    with ExitStack() as stack:
        yield [stack.enter_context(open_run_or_bundle(path)) for path in paths]


def unpack_bundle(path: Path, room: Path) -> Path:
    """Lay a bundle out below a folder of ours, if all of it is what it says; the folder of the run."""
    if not is_zipfile(path):
        raise UsageError(f"{path} is neither the folder of a run nor a bundle (mlagentbench export RUN)")
    try:
        with ZipFile(path) as bundle:
            entries = _check_entries(path, bundle)
            contents = _read_manifest(path, bundle, entries)
            target = room / (contents.run if _is_folder_name(contents.run) else "run")
            for name, (expected, _) in contents.files.items():
                _extract(path, bundle, entries[name], expected, target / name)
    except (BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError, struct.error) as error:
        raise _invalid_bundle(path, to_single_line(str(error))) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # it points to a place before its own beginning
            raise
        raise _invalid_bundle(path, "it is damaged") from error
    _check_workspace_size(path, target)
    return target


def _check_entries(path: Path, bundle: ZipFile) -> dict[str, ZipInfo]:
    """What the archive lists: plain entries, each once, none packed, and all together no more than the archive is."""
    listed = bundle.infolist()
    entries = {entry.filename: entry for entry in listed}
    if len(entries) != len(listed) or len(listed) > MAX_BUNDLE_FILES:
        raise _invalid_bundle(path, "it lists a name twice, or too many")
    for name, entry in entries.items():
        if name != MANIFEST_NAME and not FILE_PATTERN.fullmatch(name):
            raise _invalid_bundle(path, f"{format_path(name)} is no file of a run")
        if entry.compress_type != ZIP_STORED or entry.compress_size != entry.file_size or entry.flag_bits & 1:
            raise _invalid_bundle(path, f"{name} is packed; a bundle is not")
    if sum(entry.file_size for entry in listed) > path.stat().st_size:
        raise _invalid_bundle(path, "its entries are larger than it is")
    return entries


def _read_manifest(path: Path, bundle: ZipFile, entries: dict[str, ZipInfo]) -> BundleManifest:
    if MANIFEST_NAME not in entries:
        raise _invalid_bundle(path, f"it has no {MANIFEST_NAME}")
    try:
        data = bundle.read(MANIFEST_NAME)
        reject_newer_format(path, data, BUNDLE_FORMAT)
        contents = BundleManifest.model_validate_json(data)
    except ValidationError as error:
        raise _invalid_bundle(path, f"{MANIFEST_NAME}: {describe_validation_error(error)}") from error
    if differing := contents.files.keys() ^ (entries.keys() - {MANIFEST_NAME}):
        raise _invalid_bundle(path, f"{MANIFEST_NAME} and the files differ: {format_path(min(differing))}")
    if wrong := [name for name, (_, size) in contents.files.items() if entries[name].file_size != size]:
        raise _invalid_bundle(path, f"{wrong[0]} has another size than {MANIFEST_NAME} says")
    return contents


def _extract(path: Path, bundle: ZipFile, entry: ZipInfo, expected: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = blake3()
    with bundle.open(entry) as source, target.open("xb") as sink:
        while chunk := source.read(CHUNK_BYTES):
            digest.update(chunk)
            sink.write(chunk)
    if digest.hexdigest() != expected:
        raise _invalid_bundle(path, f"{entry.filename} does not match its hash")


def _check_workspace_size(path: Path, target: Path) -> None:
    """Contents are packed: what they say they unpack to is bounded here, and they are cut there when they are read."""
    sizes: dict[str, int] = {}
    total = 0
    try:
        for line in Manifest(target / SNAPSHOT_MANIFEST).lines():
            for name, entry in line.changed.items():
                total += entry.size - sizes.get(name, 0)
                sizes[name] = entry.size
            total -= sum(sizes.pop(name, 0) for name in line.removed)
            if total > MAX_WORKSPACE_BYTES:
                raise _invalid_bundle(
                    path,
                    f"after step {line.step}, its workspace is larger than {MAX_WORKSPACE_BYTES // BYTES_PER_GB} GB",
                )
    except Fault as fault:
        raise _invalid_bundle(path, str(fault)) from fault


def _is_folder_name(name: str) -> bool:
    return 0 < len(name.encode()) <= 200 and "/" not in name and "\0" not in name and name not in (".", "..")


def _invalid_bundle(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is not a sound bundle: {why}")
