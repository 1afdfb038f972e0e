"""Unpacks bundles. A bundle is untrusted input: everything it declares is checked."""

import errno
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo, is_zipfile

from blake3 import blake3
from pydantic import ValidationError

from mlagentbench.bundles.manifest import (
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
MAX_WORKSPACE_BYTES = 64 * BYTES_PER_GB  # uncompressed, as declared by the snapshot manifest
CHUNK_BYTES = 1 << 20


@contextmanager
def open_run_or_bundle(path: Path) -> Iterator[Path]:
    """The run folder: the path itself, or for a bundle, a temporary folder with its contents."""
    if not path.is_file():
        yield path
        return
    with temporary_dir() as scratch:
        yield unpack_bundle(path, scratch)


@contextmanager
def open_runs_or_bundles(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The same for several paths."""
    with ExitStack() as stack:
        yield [stack.enter_context(open_run_or_bundle(path)) for path in paths]


def unpack_bundle(path: Path, parent: Path) -> Path:
    """Check a bundle and extract it into a new folder below `parent`.

    Returns:
        The folder of the run.

    Raises:
        UsageError: The file is not a bundle, or anything in it differs from its manifest.
    """
    if not is_zipfile(path):
        raise UsageError(f"{path} is neither a run folder nor a bundle (mlagentbench export RUN writes one)")
    try:
        with ZipFile(path) as bundle:
            entries = _check_entries(path, bundle)
            manifest = _read_manifest(path, bundle, entries)
            target = parent / (manifest.run if _is_folder_name(manifest.run) else "run")
            for name, (expected, _) in manifest.files.items():
                _extract(path, bundle, entries[name], expected, target / name)
    except (BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError, struct.error) as error:
        raise _invalid_bundle(path, to_single_line(str(error))) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: an offset points before the start of the file
            raise
        raise _invalid_bundle(path, "the file is damaged") from error
    _check_workspace_size(path, target)
    return target


def _check_entries(path: Path, bundle: ZipFile) -> dict[str, ZipInfo]:
    """The entries by name: names of a run, no duplicates, uncompressed, in total no larger than the file."""
    infos = bundle.infolist()
    entries = {entry.filename: entry for entry in infos}
    if len(entries) != len(infos) or len(infos) > MAX_BUNDLE_FILES:
        raise _invalid_bundle(path, "it has duplicate names or too many files")
    for name, entry in entries.items():
        if name != MANIFEST_NAME and not FILE_PATTERN.fullmatch(name):
            raise _invalid_bundle(path, f"{format_path(name)} is not a file of a run")
        if entry.compress_type != ZIP_STORED or entry.compress_size != entry.file_size or entry.flag_bits & 1:
            raise _invalid_bundle(path, f"{name} is compressed; bundles are uncompressed")
    if sum(entry.file_size for entry in infos) > path.stat().st_size:
        raise _invalid_bundle(path, "its entries are larger than the file")
    return entries


def _read_manifest(path: Path, bundle: ZipFile, entries: dict[str, ZipInfo]) -> BundleManifest:
    if MANIFEST_NAME not in entries:
        raise _invalid_bundle(path, f"it has no {MANIFEST_NAME}")
    try:
        data = bundle.read(MANIFEST_NAME)
        reject_newer_format(path, data, BUNDLE_FORMAT)
        manifest = BundleManifest.model_validate_json(data)
    except ValidationError as error:
        raise _invalid_bundle(path, f"{MANIFEST_NAME}: {describe_validation_error(error)}") from error
    if differing := manifest.files.keys() ^ (entries.keys() - {MANIFEST_NAME}):
        raise _invalid_bundle(path, f"{MANIFEST_NAME} and the files differ: {format_path(min(differing))}")
    if wrong := [name for name, (_, size) in manifest.files.items() if entries[name].file_size != size]:
        raise _invalid_bundle(path, f"the size of {wrong[0]} differs from {MANIFEST_NAME}")
    return manifest


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
    """Bound the declared uncompressed sizes; reading a content later stops at its declared size."""
    sizes: dict[str, int] = {}
    total = 0
    try:
        for line in Manifest(target / SNAPSHOT_MANIFEST).lines():
            for name, entry in line.changed.items():
                total += entry.size - sizes.get(name, 0)
                sizes[name] = entry.size
            total -= sum(sizes.pop(name, 0) for name in line.removed)
            if total > MAX_WORKSPACE_BYTES:
                limit = f"{MAX_WORKSPACE_BYTES // BYTES_PER_GB} GB"
                raise _invalid_bundle(path, f"after step {line.step}, its workspace is larger than {limit}")
    except Fault as fault:
        raise _invalid_bundle(path, str(fault)) from fault


def _is_folder_name(name: str) -> bool:
    return 0 < len(name.encode()) <= 200 and "/" not in name and "\0" not in name and name not in (".", "..")


def _invalid_bundle(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} is not a valid bundle: {reason}")
